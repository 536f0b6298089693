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

// An agent calls tools and prints what it receives. It counts the steps that weren't as expected.
type agent struct {
	ctx     context.Context
	session *mcp.ClientSession
	out     io.Writer
	wrong   int
}

// An answer is the result of a call: the text that a model reads and, of a failure, what a program reads in its _meta.
type answer struct {
	Code       string `json:"code"`
	RetryAfter int    `json:"retryAfter"`
	text       string
	took       time.Duration
	err        error // why there is no answer
}

func (a *agent) step(title string) { fmt.Fprintf(a.out, "\n%s\n", title) }

// call makes a call and prints its answer. The expected code is empty for success.
func (a *agent) call(tool string, args map[string]any, code string) {
	a.show(tool, a.ask(tool, args, 0), code)
}

// ask makes a call. A timeout of zero leaves the tool's own.
func (a *agent) ask(tool string, args map[string]any, timeout time.Duration) answer {
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	if timeout > 0 {
		params.Meta = mcp.Meta{resilience.MetaTimeout: timeout.Seconds()}
	}

	start := time.Now()
	res, err := a.session.CallTool(a.ctx, params)
	took := time.Since(start)

	got := read(res, err)
	got.took = took
	return got
}

// read returns the answer that a result holds.
func read(res *mcp.CallToolResult, err error) (got answer) {
	if err != nil {
		return answer{err: fmt.Errorf("a protocol error: %w", err)}
	}

	// A model gets the content. The tool's own words come first, and then what the guard adds.
	var texts []string
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	if res.IsError {
		metadata, err := json.Marshal(res.Meta[resilience.MetaError])
		if err == nil {
			err = json.Unmarshal(metadata, &got)
		}
		if err != nil || got.Code == "" {
			got.err = fmt.Errorf("a failure without guidance: %s", texts)
		}
	}
	got.text = strings.Join(texts, " / ")
	return got
}

// awaitClosed waits until the breaker of a tool is closed, and makes no call of the tool.
func (a *agent) awaitClosed(tool string) {
	start := time.Now()
	for !a.isClosed(tool) && a.ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	const line = "%-8s %6s  (closed by the server's Probe, without a call)"
	a.print(a.ctx.Err() == nil, "", line, tool, round(time.Since(start)))
}

// isClosed reads in the server's health whether the breaker of a tool is closed.
func (a *agent) isClosed(tool string) bool {
	var health struct {
		Tools []struct {
			Tool  string `json:"tool"`
			State string `json:"state"`
		} `json:"tools"`
	}
	if got := a.ask(gosdk.HealthTool, nil, 0); json.Unmarshal([]byte(got.text), &health) != nil {
		return false
	}
	for _, t := range health.Tools {
		if t.Tool == tool {
			return t.State == resilience.StateClosed.String()
		}
	}
	return false
}

// show prints an answer, and notes whether it has the expected code.
func (a *agent) show(tool string, got answer, code string) {
	mark, line := "error", got.text
	switch {
	case got.err != nil:
		line = got.err.Error()
	case got.Code == "":
		mark, line = "ok", short(got.text)
	}
	a.print(got.err == nil && got.Code == code, mark, "%-8s %6s  %s", tool, round(got.took), line)
}

// print prints a line behind a mark, and notes whether it is as expected.
func (a *agent) print(expected bool, mark, format string, args ...any) {
	if !expected {
		mark = "WRONG"
		a.wrong++
	}
	fmt.Fprintf(a.out, "  %-5s  %s\n", mark, fmt.Sprintf(format, args...))
}

func round(d time.Duration) time.Duration {
	if d > time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 90 {
		text = strings.ToValidUTF8(text[:90], "") + "…"
	}
	return text
}
