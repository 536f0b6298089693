package gosdk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A call of a client's without params, and one that isn't tools/call, is the SDK's affair.
func TestOtherRequestsOfAClientPassUnchanged(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		req    mcp.Request
	}{
		"nil params":     {"tools/call", &mcp.ClientRequest[*mcp.CallToolParams]{}},
		"another method": {"tools/list", &mcp.ClientRequest[*mcp.CallToolParams]{Params: &mcp.CallToolParams{Name: "x"}}},
		"another type":   {"tools/call", &mcp.ClientRequest[*mcp.ListToolsParams]{Params: &mcp.ListToolsParams{}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			res, err := gosdk.ClientMiddleware(g)(func(_ context.Context, method string, req mcp.Request) (mcp.Result, error) {
				assert.Equal(t, tc.method, method)
				assert.Same(t, tc.req, req)
				return nil, errBoom
			})(t.Context(), tc.method, tc.req)
			assert.Nil(t, res)
			assert.Same(t, errBoom, err)
			assert.Empty(t, g.Health())
		})
	}
}

// What the tool's author says stands after the caller has left too, wrapped or not.
func TestErrorOfTheToolsOwnForACallerWhoHasLeft(t *testing.T) {
	own := &resilience.Error{Code: "PARTIAL", Message: "3 of 7 rows are written"}
	for name, err := range map[string]error{"bare": own, "wrapped": fmt.Errorf("import: %w", own)} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			res, err := gosdk.Middleware(newGuard(t, resilience.Config{}))(
				func(context.Context, string, mcp.Request) (mcp.Result, error) {
					leave()
					return nil, err
				})(ctx, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x"}})
			require.NoError(t, err)
			assert.Contains(t, jsonOf(t, res), own.Message)
		})
	}
}

// A failure for a caller who has left is no result of the tool's, unless the tool has said what it is.
func TestResultForACallerWhoHasLeft(t *testing.T) {
	question := &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{}}}
	explained := errorTextResult("no")
	explained.Meta = mcp.Meta{resilience.MetaError: map[string]any{"code": "VALIDATION", "message": "no such row"}}
	for name, tc := range map[string]struct {
		res  *mcp.CallToolResult
		opts []gosdk.Option
		want error
	}{
		"a failure":          {errorTextResult("no"), nil, resilience.CodeCanceled},
		"one of a backend's": {errorTextResult("no"), []gosdk.Option{gosdk.Failure(gosdk.CountAll)}, resilience.CodeCanceled},
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

// Without HideErrors, an error that wraps a protocol error keeps its words.
func TestWordsAroundAProtocolErrorAreKept(t *testing.T) {
	f := newProtected(t, resilience.Config{})
	f.raw("x", nil, returns(nil, fmt.Errorf("table users: %w", &jsonrpc.Error{Code: -32050, Message: "no such row"})))
	f.connect("")
	assert.Equal(t, "table users: no such row", f.protocolError("x").Message)
}

// Without a session, the newest protocol is assumed.
func TestErrorWithoutASessionIsOneOfTheNewestProtocol(t *testing.T) {
	for protocol, want := range map[string]bool{"": true, latest: true, "2027-01-01": true, legacy: false} {
		t.Run(protocol, func(t *testing.T) {
			params := &mcp.CallToolParamsRaw{Name: "x"}
			if protocol != "" {
				params.Meta = mcp.Meta{mcp.MetaKeyProtocolVersion: protocol}
			}
			res, err := gosdk.Middleware(newGuard(t, resilience.Config{}))(
				func(context.Context, string, mcp.Request) (mcp.Result, error) { return nil, nil },
			)(t.Context(), "tools/call", &mcp.CallToolRequest{Params: params})
			require.NoError(t, err)
			assert.Equal(t, want, jsonHas(t, res, "resultType"))
		})
	}
}

// jsonHas reports whether v has a field of that name as JSON.
func jsonHas(t *testing.T, v any, name string) bool {
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(jsonOf(t, v)), &fields))
	_, ok := fields[name]
	return ok
}

// ClientMiddleware pauses nothing, so a call of several rounds may be made again.
func TestCallOfSeveralRoundsIsRetriedWithoutAClientOfTheGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{}, nil)
		questions := 0
		f.raw("x", nil, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if len(req.Params.InputResponses) > 0 {
				return errorTextResult(fmt.Sprint("no ", questions)), nil
			}
			questions++
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": askedOf["roots"].params}}, nil
		})
		g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: fast})
		f.connect(latest, gosdk.ClientMiddleware(g, gosdk.Failure(gosdk.CountAll)))
		assert.Equal(t, "no 4", text(t, f.call("x")))
	})
}
