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

// An agent calls tools and prints what it receives. It counts the steps that weren't as expected.
type agent struct {
	ctx     context.Context
	out     io.Writer
	session *mcp.ClientSession
	failed  int
}

// An answer is the result of a call as an agent reads it: what the tool returned, or an error of
// the guard.
type answer struct {
	Text       string `json:"text"`
	Clicked    bool   `json:"clicked"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	Suggestion string `json:"suggestion"`
	Retryable  bool   `json:"retryable"`
	RetryAfter int    `json:"retryAfter"`
	took       time.Duration
	err        error // why there is no answer
}

// A pending is a call in flight.
type pending struct {
	tool string
	done chan struct{} // closed once answer is set
	answer
}

func (a *agent) step(title string) { fmt.Fprintf(a.out, "\n%s\n", title) }

// call makes a call and prints its answer. The expected code is empty for success.
func (a *agent) call(tool string, args map[string]any, code string) answer {
	return a.end(a.begin(tool, args, 0), code)
}

// begin starts a call. A timeout of zero leaves the tool's own.
func (a *agent) begin(tool string, args map[string]any, timeout time.Duration) *pending {
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	if timeout > 0 {
		params.Meta = mcp.Meta{resilience.MetaTimeout: timeout.Seconds()}
	}

	p := &pending{tool: tool, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		start := time.Now()
		res, err := a.session.CallTool(a.ctx, params)
		took := time.Since(start)
		p.answer = read(res, err)
		p.took = took
	}()
	return p
}

// read returns the answer that a result holds.
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
		err = fmt.Errorf("the failure has no error metadata: %s", b)
	}
	got.err = err
	return got
}

// end waits for the end of a call, and prints its answer and whether it has the expected code.
func (a *agent) end(p *pending, code string) answer {
	<-p.done // at the latest when a.ctx ends
	took := p.took.Round(time.Millisecond)

	switch {
	case p.err != nil:
		a.expect(false, "%-5s %6s  %v", p.tool, took, p.err)
	case p.Code == "":
		text := p.Text
		if p.Clicked {
			text = "clicked"
		}
		a.expect(code == "", "%-5s %6s  %s", p.tool, took, text)
	default:
		line := fmt.Sprintf("%s: %s (retryable: %v", p.Code, p.Message, p.Retryable)
		if p.RetryAfter > 0 {
			line += fmt.Sprintf(", retryAfter: %d", p.RetryAfter)
		}
		a.expect(p.Code == code, "%-5s %6s  %s)", p.tool, took, line)
	}
	return p.answer
}

// expectRetryAfter fails unless the answer says when to call again, as it must while the
// connection is down.
func (a *agent) expectRetryAfter(got answer) {
	if !got.Retryable || got.RetryAfter < 1 {
		a.expect(false, "the answer doesn't say when to call again")
	}
}

func (a *agent) expectText(got answer, text string) {
	if got.Text != text {
		a.expect(false, "the text isn't %q", text)
	}
}

// wait waits until the shop holds the request of a call.
func (a *agent) wait(h *hold, p *pending) error {
	select {
	case <-h.reached:
		return nil
	case <-p.done:
		a.end(p, "(none: it should be under way)")
		return fmt.Errorf("the call of %s ended before it should", p.tool)
	}
}

// expect prints a line, marked by whether it is as expected.
func (a *agent) expect(ok bool, format string, args ...any) {
	mark := "ok  "
	if !ok {
		mark = "FAIL"
		a.failed++
	}
	fmt.Fprintf(a.out, "  %s %s\n", mark, fmt.Sprintf(format, args...))
}
