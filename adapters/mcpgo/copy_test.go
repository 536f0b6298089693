package mcpgo_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nested returns what is within so many lists, and the innermost of them.
func nested(levels int) (outermost, innermost []any) {
	innermost = []any{nil}
	outermost = innermost
	for range levels - 1 {
		outermost = []any{outermost}
	}
	return outermost, innermost
}

func inside(list []any, levels int) []any {
	for range levels - 1 {
		list = list[0].([]any)
	}
	return list
}

// Other middleware can pass on arguments that contain themselves. What does stays as it is: there is no end to it.
func TestArgumentsThatContainThemselvesAreCopiedAsFarAsTheyGo(t *testing.T) {
	for _, levels := range []int{1, 2, 15, 16, 17, 18, 100} {
		list, last := nested(levels)
		last[0] = list
		object := map[string]any{"list": list}
		object["itself"] = object
		named := map[string][]any{"list": nil}
		named["list"] = []any{named}
		object["named"] = named

		h := mcpgo.Middleware(newGuard(t, resilience.Config{}))(
			func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				got := req.GetArguments()
				inside(got["list"].([]any), levels)[0] = "changed"
				got["named"].(map[string][]any)["list"][0] = "changed"
				inner := got["itself"].(map[string]any)["itself"] // a request is copied twice
				assert.Equal(t, reflect.ValueOf(object).Pointer(), reflect.ValueOf(inner).Pointer())
				delete(got, "itself")
				return done, nil
			})
		res, err := h(t.Context(), request("x", object, nil))
		require.NoError(t, err)
		assert.Same(t, done, res, "it has changed all")
		assert.IsType(t, list, last[0], "%d", levels)
		assert.IsType(t, named, named["list"][0])
		assert.Contains(t, object, "itself")
	}
}

// What is there twice is copied twice: only what contains itself is left alone.
func TestArgumentsThatAreThereTwiceAreCopied(t *testing.T) {
	for _, levels := range []int{1, 15, 16, 17, 18, 100} {
		list, last := nested(levels)
		h := mcpgo.Middleware(newGuard(t, resilience.Config{}))(
			func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				for _, copied := range req.GetArguments() {
					inside(copied.([]any), levels)[0] = "changed"
				}
				return done, nil
			})
		res, err := h(t.Context(), request("x", map[string]any{"a": list, "b": list, "c": list}, nil))
		require.NoError(t, err)
		assert.Same(t, done, res, "it has changed all")
		assert.Nil(t, last[0], "%d", levels)
	}

	object, named := map[string]any{"k": 1}, map[string][]string{"k": {"v"}}
	h := mcpgo.Middleware(newGuard(t, resilience.Config{}))(
		func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for _, copied := range req.GetArguments() {
				switch copied := copied.(type) {
				case map[string]any:
					copied["k"] = "changed"
				case map[string][]string:
					copied["k"][0] = "changed"
				}
			}
			return done, nil
		})
	_, err := h(t.Context(), request("x", map[string]any{
		"a": object, "b": object, "c": object, "d": named, "e": named, "f": named, // each time a request is copied
	}, nil))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"k": 1}, object)
	assert.Equal(t, map[string][]string{"k": {"v"}}, named)
}
