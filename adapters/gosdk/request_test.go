package gosdk_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twoAttempts returns a guard, and a function that makes a change and then fails in the first attempt of "x".
func twoAttempts(t *testing.T) (*resilience.Guard, func(ctx context.Context, change func()) (mcp.Result, error)) {
	g := newGuard(t, resilience.Config{
		Retry: fast, Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}},
	})
	return g, func(ctx context.Context, change func()) (mcp.Result, error) {
		change()
		if resilience.Attempt(ctx) == 1 {
			return nil, resilience.MarkNoEffect(errBoom)
		}
		return textResult("done"), nil
	}
}

// A tool may change its request.
func TestEachAttemptReceivesTheOriginalRequest(t *testing.T) {
	request := func() *mcp.CallToolRequest {
		return &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{
			Name: "x", Meta: mcp.Meta{"a": "b"}, Arguments: json.RawMessage(`{"n":1}`),
		}}
	}
	g, attempt := twoAttempts(t)
	handler := gosdk.Middleware(g)(func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "tools/list" {
			return &mcp.ListToolsResult{}, nil
		}
		call := req.(*mcp.CallToolRequest)
		assert.Equal(t, request(), call)
		return attempt(ctx, func() {
			call.Params.Name, call.Params.Meta["a"], call.Params.Arguments = "changed", "changed", nil
		})
	})

	original := request()
	res, err := handler(t.Context(), "tools/call", original)
	require.NoError(t, err)
	assert.Equal(t, "done", text(t, res.(*mcp.CallToolResult)))
	assert.Equal(t, request(), original, "which other middleware sees")
}

// The caller, too, may change what it has passed once the call has returned.
func TestAttemptsOfAClientShareNothingOfARequest(t *testing.T) {
	newParams := func(arguments any) *mcp.CallToolParams {
		return &mcp.CallToolParams{Name: "x", Meta: mcp.Meta{"a": "b"}, Arguments: arguments}
	}
	for name, request := range map[string]func(*mcp.CallToolParams) mcp.Request{
		"the SDK's": func(p *mcp.CallToolParams) mcp.Request { return &mcp.ClientRequest[mcp.Params]{Params: p} },
		"a program's": func(p *mcp.CallToolParams) mcp.Request {
			return &mcp.ClientRequest[*mcp.CallToolParams]{Params: p}
		},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := map[string]any{"rows": []int{1}}
			params := newParams(arguments)
			g, attempt := twoAttempts(t)
			call := gosdk.ClientMiddleware(g)(func(ctx context.Context, _ string, req mcp.Request) (mcp.Result, error) {
				assert.IsType(t, request(params), req)
				params := req.GetParams().(*mcp.CallToolParams)
				assert.Equal(t, newParams(json.RawMessage(`{"rows":[1]}`)), params)
				return attempt(ctx, func() {
					_, err := json.Marshal(params) // as the SDK does, however late
					assert.NoError(t, err)
					params.Meta["a"], params.RequestState = "changed", "changed"
				})
			})

			_, err := call(t.Context(), "tools/call", request(params))
			require.NoError(t, err)
			assert.Equal(t, newParams(arguments), params)
			arguments["rows"].([]int)[0] = 2
			params.Meta["a"] = "the caller's"
		})
	}
}
