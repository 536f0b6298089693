package main

import (
	"io"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// A demo that printed "ok" whatever happened would show nothing.
func TestUnexpectedAnswersFailTheDemo(t *testing.T) {
	failure := func(metadata map[string]any) answer {
		return read(&mcp.CallToolResult{IsError: true, Meta: mcp.Meta{resilience.MetaError: metadata}}, nil)
	}
	end := func(got answer, code string) func(*agent) {
		done := make(chan struct{})
		close(done)
		return func(a *agent) { a.end(&pending{tool: "x", done: done, answer: got}, code) }
	}
	lost := failure(map[string]any{"code": "CONNECTION_LOST", "retryable": true})

	for name, step := range map[string]func(*agent){
		"protocol error":       end(read(nil, assert.AnError), ""),
		"no metadata":          end(failure(nil), "TIMEOUT"),
		"other code":           end(lost, "TIMEOUT"),
		"failure":              end(lost, ""),
		"success":              end(read(&mcp.CallToolResult{}, nil), "TIMEOUT"),
		"no time to call back": func(a *agent) { a.expectRetryAfter(lost) },
		"other text":           func(a *agent) { a.expectText(answer{Text: "1"}, "2") },
	} {
		a := &agent{out: io.Discard}
		step(a)
		assert.Equal(t, 1, a.failed, name)
		assert.ErrorContains(t, a.check("its log"), "1 steps were not as expected; the bridge's log:\nits log", name)
	}

	a := &agent{out: io.Discard}
	end(lost, "CONNECTION_LOST")(a)
	assert.NoError(t, a.check(""))
}
