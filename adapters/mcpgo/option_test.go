package mcpgo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mcp-go's users return Go errors by NewToolResultErrorFromErr, which keeps only the text, and so does a structured
// handler. A dead backend opens the breaker all the same.
func TestDeadBackendIsSeenByTheTextOfItsError(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	get := func() error { _, err := http.Get(dead.URL); return err }
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		says    string
	}{
		"from an error": {func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultErrorFromErr("request failed", get()), nil
		}, "request failed: Get "},
		"by words of its own": {func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError(fmt.Sprintf("no weather: %v", get())), nil
		}, "no weather: Get "},
		"by a structured handler": {mcp.NewStructuredToolHandler(
			func(context.Context, mcp.CallToolRequest, input) (input, error) { return input{}, get() },
		), "tool execution failed: Get "},
		"by a status": {func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("unexpected status 503 Service Unavailable"), nil
		}, "unexpected status"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, onlyX(resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}}))
			s := newServer(g)
			s.AddTool(mcp.NewTool("x"), tc.handler)
			c := connect(t, s)

			for i := range 5 {
				assert.Equal(t, i, failures(t, g, "x"))
				res := callTool(t, c, "x", map[string]any{"n": 1}, nil)
				assert.Contains(t, text(t, res), tc.says, "the tool's own text stands")
				assert.NotEmpty(t, errorIn(t, res).Suggestion)
			}
			res := callTool(t, c, "x", nil, nil)
			assert.Equal(t, resilience.CodeCircuitOpen, errorIn(t, res).Code)
		})
	}
}

func TestMeaningOfAResult(t *testing.T) {
	const invalid, transient, neutral = resilience.ClassInvalid, resilience.ClassTransient, resilience.ClassNeutral
	known, all, errs, none := mcpgo.CountKnown, mcpgo.CountAll, mcpgo.CountErrors, mcpgo.CountNone
	const missing, nothing = `required argument "x" not found`, "the tool returned a result with isError"
	const notBound = "failed to bind arguments: x"
	image := mcp.NewImageContent("aGk=", "image/png")
	tail := mcp.NewTextContent("and more")
	result := func(content ...mcp.Content) *mcp.CallToolResult {
		return &mcp.CallToolResult{IsError: true, Content: content}
	}
	failed := mcp.NewToolResultError
	errUnknown, errMissing := errors.New("unknown"), errors.New(missing)

	for name, tc := range map[string]struct {
		failure mcpgo.FailureFunc
		result  *mcp.CallToolResult
		class   resilience.Class
		text    string
	}{
		"known, its text":         {known, failed("no luck"), transient, "no luck"},
		"known, nothing to read":  {known, result(), transient, nothing},
		"known, an image":         {known, result(image), transient, nothing},
		"known, several":          {known, result(failed("a").Content[0], image, &tail), transient, "a\nand more"},
		"known, an argument":      {known, failed(missing), invalid, missing},
		"known, not bound":        {known, failed(notBound), invalid, notBound},
		"known, quoted":           {known, failed(missing + ", it said"), transient, missing + ", it said"},
		"known, SetError":         {known, failedResult(os.ErrNotExist), invalid, os.ErrNotExist.Error()},
		"known, SetError unknown": {known, failedResult(errUnknown), transient, "unknown"},
		"known, SetError of an argument": {
			known, failedResult(fmt.Errorf("first: %w", errMissing)), invalid, "first: " + missing,
		},
		"all, its text":        {all, failed("no luck"), transient, "no luck"},
		"all, an argument":     {all, failed(missing), invalid, missing},
		"all, SetError":        {all, failedResult(os.ErrNotExist), invalid, os.ErrNotExist.Error()},
		"errors, its text":     {errs, failed("no luck"), neutral, "no luck"},
		"errors, SetError":     {errs, failedResult(errUnknown), transient, "unknown"},
		"errors, the caller's": {errs, failedResult(os.ErrNotExist), invalid, os.ErrNotExist.Error()},
		"none, its text":       {none, failed("no luck"), neutral, "no luck"},
		"none, a dead backend": {none, failed("dial: connection refused"), neutral, "dial: connection refused"},
		"none, SetError":       {none, failedResult(errBackend), neutral, errBackend.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.failure(t.Context(), request("x", nil, nil), tc.result)
			assert.EqualError(t, err, tc.text)
			assert.Equal(t, tc.class, resilience.Classify(err))
			assert.Equal(t, tc.text == errBackend.Error(), errors.Is(err, errBackend))
		})
	}
}

// argumentErrors returns every complaint about arguments that mcp-go's requests make.
func argumentErrors(r mcp.CallToolRequest) map[string]error {
	errs := make(map[string]error)
	for _, key := range []string{"missing", "s", "o", "l"} {
		_, errs["string "+key] = r.RequireString(key)
		_, errs["int "+key] = r.RequireInt(key)
		_, errs["float "+key] = r.RequireFloat(key)
		_, errs["bool "+key] = r.RequireBool(key)
		_, errs["strings "+key] = r.RequireStringSlice(key)
		_, errs["ints "+key] = r.RequireIntSlice(key)
		_, errs["floats "+key] = r.RequireFloatSlice(key)
		_, errs["bools "+key] = r.RequireBoolSlice(key)
	}
	delete(errs, "string s") // which is a string
	for _, key := range []string{"$filter", "größe", "user id", "filter[name]", `a "b" \c`, "a\nb\u200b\x80", ""} {
		_, errs["of the name "+key] = r.RequireString(key)
	}
	return errs
}

// mcp-go's complaints about arguments are the caller's mistake, as errors and in results. This test fails if mcp-go
// changes their words.
func TestArgumentErrorIsTheCallersMistake(t *testing.T) {
	args := map[string]any{"s": "text", "o": map[string]any{}, "l": []any{"text", 1, map[string]any{}}}
	errs := argumentErrors(request("x", args, nil))
	assert.Len(t, errs, 38)

	for name, complaint := range errs {
		for kind, handler := range map[string]server.ToolHandlerFunc{
			"an error":     returns(nil, complaint),
			"a result":     returns(mcp.NewToolResultError(complaint.Error()), nil),
			"after a line": returns(mcp.NewToolResultErrorFromErr("bad arguments\n", complaint), nil),
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				var ended resilience.CallEnd
				g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Observers: []resilience.Observer{{
					End: func(_ context.Context, e resilience.CallEnd) { ended = e },
				}}})
				var tries atomic.Int32
				h := mcpgo.Middleware(g, mcpgo.Failure(mcpgo.CountAll))(counted(&tries, handler))
				res, err := h(t.Context(), request("x", args, nil))
				require.NoError(t, g.Flush(t.Context()))
				assert.ErrorIs(t, ended.Err, resilience.CodeValidation)
				assert.EqualValues(t, 1, tries.Load())
				assert.Zero(t, failures(t, g, "x"))
				if err != nil {
					assert.Equal(t, complaint, err)
					return
				}
				assert.Contains(t, text(t, res), complaint.Error())
				assert.Empty(t, errorIn(t, res).Code)
			})
		}
	}
}
