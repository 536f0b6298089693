package main

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) { require.NoError(t, demo(t.Context(), t.Output())) }

func TestSuccessAndFailureLookDifferent(t *testing.T) {
	for want, got := range map[string]answer{
		"  ok     read         0s  text\n":                                  {text: "text"},
		"  error  read         0s  gone\n                          Wait.\n": {text: "gone\nWait.", code: "TIMEOUT"},
	} {
		var out strings.Builder
		a := &agent{out: &out}
		a.show("read", got, got.code)
		assert.Equal(t, want, out.String())
		assert.Zero(t, a.unexpected)
		a.show("read", got, "CANCELED")
		assert.Contains(t, out.String(), "UNEXPECTED")
		assert.Equal(t, 1, a.unexpected)
	}
	failure := &mcp.CallToolResult{Meta: mcp.Meta{resilience.MetaError: map[string]any{"code": "TIMEOUT"}}}
	assert.Equal(t, resilience.CodeTimeout, codeOf(failure))
	assert.Equal(t, resilience.Code("(a failure without a code)"), codeOf(&mcp.CallToolResult{}))
}
