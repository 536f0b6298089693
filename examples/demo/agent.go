package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// An agent calls tools and prints what it receives. It counts the calls that didn't end as expected.
type agent struct {
	ctx        context.Context
	session    *mcp.ClientSession
	out        io.Writer
	calls      int
	unexpected int
}

// An answer is the result of a call: the text that a model reads and, of a failure, its code.
type answer struct {
	text string
	code resilience.Code // empty for success
	took time.Duration
}

// ask makes a call. A timeout of zero leaves the tool's own.
func (a *agent) ask(tool string, args map[string]any, timeout time.Duration) answer {
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	if timeout > 0 {
		params.Meta = mcp.Meta{resilience.MetaTimeout: timeout.Seconds()}
	}
	start := time.Now()
	res, err := a.session.CallTool(a.ctx, params)
	got := answer{took: time.Since(start)}
	if err != nil {
		got.text, got.code = err.Error(), "(an error of the protocol)"
		return got
	}

	// A model gets the content: the tool's own words, and then what the guard adds.
	var texts []string
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	got.text = strings.Join(texts, "\n")
	if res.IsError {
		got.code = codeOf(res)
	}
	return got
}

// codeOf returns the code that a program finds in the _meta of a failure.
func codeOf(res *mcp.CallToolResult) resilience.Code {
	var guidance struct{ Code resilience.Code }
	metadata, err := json.Marshal(res.Meta[resilience.MetaError])
	if err != nil || json.Unmarshal(metadata, &guidance) != nil || guidance.Code == "" {
		return "(a failure without a code)"
	}
	return guidance.Code
}

// step prints what happens now.
func (a *agent) step(format string, args ...any) { fmt.Fprintf(a.out, "\n"+format+"\n", args...) }

// note prints a remark on what happens.
func (a *agent) note(format string, args ...any) { fmt.Fprintf(a.out, "  "+format+"\n", args...) }

// call makes a call and prints its answer. The expected code is empty for success.
func (a *agent) call(tool string, args map[string]any, code resilience.Code) {
	a.show(tool, a.ask(tool, args, 0), code)
}

// show prints an answer. A success begins with "ok", and a failure with "error" and all that the agent reads.
func (a *agent) show(tool string, got answer, code resilience.Code) {
	a.calls++
	mark, text := "ok", short(got.text)
	if got.code != "" {
		mark, text = "error", strings.ReplaceAll(got.text, "\n", "\n"+strings.Repeat(" ", 26))
	}
	fmt.Fprintf(a.out, "  %-5s  %-8s %6s  %s\n", mark, tool, got.took.Round(time.Millisecond), text)
	if got.code != code {
		a.unexpected++
		fmt.Fprintf(a.out, "  UNEXPECTED: its code is %q, not %q\n", got.code, code)
	}
}

// awaitClosed waits until the breaker of a tool is closed. It makes no call of the tool, but reads the server's health.
func (a *agent) awaitClosed(tool string) error {
	for a.ctx.Err() == nil {
		var health struct {
			Tools []resilience.Health
		}
		if err := json.Unmarshal([]byte(a.ask(gosdk.HealthTool, nil, 0).text), &health); err != nil {
			return err
		}
		for _, t := range health.Tools {
			if t.Tool == tool && t.State == resilience.StateClosed {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the breaker of %s isn't closed: %w", tool, a.ctx.Err())
}

// short returns the beginning of a text, in one line.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	return text
}
