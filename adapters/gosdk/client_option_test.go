package gosdk_test

import (
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDebugShowsTheArgumentsOfAClient(t *testing.T) {
	var ended resilience.CallEnd
	g := newGuard(t, resilience.Config{Debug: true, Observers: []resilience.Observer{{
		End: func(_ context.Context, e resilience.CallEnd) { ended = e },
	}}})
	f := newFixture(t, resilience.Config{}, nil)
	f.raw("x", nil, returns(textResult("done"), nil))
	f.connect("", gosdk.ClientMiddleware(g))
	f.call("x")
	require.NoError(t, g.Flush(t.Context()))
	assert.Equal(t, map[string]any{"n": 1}, ended.Arguments)
}

// A client's calls of one broken backend don't shut the tool for the others.
func TestBreakerKeyOfAClient(t *testing.T) {
	f := newFixture(t, resilience.Config{}, nil)
	f.raw("query", nil, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if strings.Contains(string(req.Params.Arguments), "broken") {
			return errorTextResult("down"), nil
		}
		return textResult("rows"), nil
	})
	key := gosdk.BreakerKey(func(_ context.Context, req mcp.Request) string {
		return req.GetParams().(*mcp.CallToolParams).Arguments.(map[string]any)["source"].(string)
	})
	f.connect("", gosdk.ClientMiddleware(newGuard(t, resilience.Config{}), key, gosdk.Failure(gosdk.CountAll)))
	call := func(source string) (*mcp.CallToolResult, error) {
		arguments := map[string]any{"source": source}
		return f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "query", Arguments: arguments})
	}
	for range 5 {
		_, err := call("broken")
		require.NoError(t, err)
	}
	_, err := call("broken")
	assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
	res, err := call("fine")
	require.NoError(t, err)
	assert.Equal(t, "rows", text(t, res))
}

// A failure for a caller who has left is no result of the tool's, unless the tool has said what it is.
func TestResultForACallerWhoHasLeft(t *testing.T) {
	question := &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{}}}
	countAll := []gosdk.Option{gosdk.Failure(gosdk.CountAll)}
	explained := errorTextResult("no")
	explained.Meta = mcp.Meta{resilience.MetaError: map[string]any{"code": "VALIDATION", "message": "no such row"}}
	for name, tc := range map[string]struct {
		res  *mcp.CallToolResult
		opts []gosdk.Option
		want error
	}{
		"a failure":          {errorTextResult("no"), nil, resilience.CodeCanceled},
		"one of a backend's": {errorTextResult("no"), countAll, resilience.CodeCanceled},
		"what a guard says":  {explained, nil, nil},
		"a question":         {question, nil, nil},
		"a success":          {textResult("yes"), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			next := func(context.Context, string, mcp.Request) (mcp.Result, error) {
				leave()
				return tc.res, nil
			}
			cooperative := resilience.Tool{Cooperative: true} // it is waited for
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": cooperative}})
			res, err := gosdk.ClientMiddleware(g, tc.opts...)(next)(ctx, "tools/call",
				&mcp.ClientRequest[*mcp.CallToolParams]{Params: &mcp.CallToolParams{Name: "x"}})
			if tc.want != nil {
				assert.ErrorIs(t, err, tc.want)
				assert.Nil(t, res)
				return
			}
			require.NoError(t, err)
			assert.Same(t, tc.res, res)
		})
	}
}
