package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// An agent calls tools and shows what it reads.
type agent struct {
	ctx     context.Context
	out     io.Writer
	session *mcp.ClientSession
	failed  int
}

// An answer is what a call came to, as an agent reads it: a tool's text, or one of our
// errors.
type answer struct {
	Text       string        `json:"text"`
	Clicked    bool          `json:"clicked"`
	Code       string        `json:"code"`
	Message    string        `json:"message"`
	Suggestion string        `json:"suggestion"`
	Retryable  bool          `json:"retryable"`
	RetryAfter int           `json:"retryAfter"`
	took       time.Duration // to the answer
	err        error         // there is none
}

// A pending call is under way.
type pending struct {
	tool string
	done chan struct{}
	got  answer // once done is closed
}

func (a *agent) step(title string) { fmt.Fprintf(a.out, "\n%s\n", title) }

// call makes a call that shall end with the given code, "" for success.
func (a *agent) call(tool string, args map[string]any, code string) answer {
	return a.end(a.begin(tool, args, 0), code)
}

// begin begins a call. A limit above 0 is the agent's own.
func (a *agent) begin(tool string, args map[string]any, limit time.Duration) *pending {
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	if limit > 0 {
		params.Meta = mcp.Meta{resilience.MetaTimeout: limit.Seconds()}
	}
	p := &pending{tool: tool, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		start := time.Now()
		res, err := a.session.CallTool(a.ctx, params)
		took := time.Since(start)
		p.got = read(res, err)
		p.got.took = took
	}()
	return p
}

func read(res *mcp.CallToolResult, err error) (got answer) {
	if err != nil {
		return answer{err: fmt.Errorf("a protocol error: %w", err)}
	}
	var from any = res.StructuredContent
	if res.IsError {
		from = res.Meta[resilience.MetaError]
	}
	b, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err == nil && res.IsError && got.Code == "" {
		err = fmt.Errorf("there is no advice with the failure: %s", b)
	}
	got.err = err
	return got
}

// end waits for the end of a call, which shall be with the given code.
func (a *agent) end(p *pending, code string) answer {
	<-p.done // by a.ctx at the latest
	got := p.got
	took := got.took.Round(time.Millisecond)
	switch {
	case got.err != nil:
		a.expect(false, "%-5s %6s  %v", p.tool, took, got.err)
	case got.Code == "":
		text := got.Text
		if got.Clicked {
			text = "clicked"
		}
		a.expect(code == "", "%-5s %6s  %s", p.tool, took, text)
	default:
		line := fmt.Sprintf("%s: %s (retryable: %v", got.Code, got.Message, got.Retryable)
		if got.RetryAfter > 0 {
			line += fmt.Sprintf(", retryAfter: %d", got.RetryAfter)
		}
		a.expect(got.Code == code, "%-5s %6s  %s)", p.tool, took, line)
	}
	return got
}

// down is what a CONNECTION_LOST must say while there is no connection.
func (a *agent) down(got answer) {
	if !got.Retryable || got.RetryAfter < 1 {
		a.expect(false, "the agent isn't told when to come back")
	}
}

func (a *agent) says(got answer, text string) {
	if got.Text != text {
		a.expect(false, "the text isn't %q", text)
	}
}

// wait waits until the shop holds the request that a call leads to.
func (a *agent) wait(h *hold, p *pending) error {
	select {
	case <-h.reached:
		return nil
	case <-p.done:
		a.end(p, "(none: it should be under way)")
		return fmt.Errorf("the call of %s ended before it should", p.tool)
	}
}

func (a *agent) expect(ok bool, format string, args ...any) {
	mark := "ok  "
	if !ok {
		mark = "FAIL"
		a.failed++
	}
	fmt.Fprintf(a.out, "  %s %s\n", mark, fmt.Sprintf(format, args...))
}
