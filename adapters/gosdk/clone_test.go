//lint:file-ignore SA1019 clients still answer requests for sampling and roots
package gosdk_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachAttemptReceivesTheOriginalRequest(t *testing.T) {
	f := newProtected(t, resilience.Config{AttemptTimeout: 20 * time.Millisecond})
	var seen atomic.Value
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	f.raw("raw", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		seen.Store(string(req.Params.Arguments))
		req.Params.Arguments[1] = 'X'
		req.Params.Name = "changed"
		if resilience.Attempt(ctx) > 1 {
			return failedResult("no"), nil
		}
		for { // while it is abandoned, it continues to change its request
			select {
			case <-release:
				return nil, nil
			default:
				req.Params.Arguments[2]++
			}
		}
	})
	f.connect("")
	res := f.call("raw")
	assert.Equal(t, resilience.CodeRetryExhausted, metadataOf(t, res).Code)
	assert.Equal(t, `{"n":1}`, seen.Load())
}

// ownClaims is a type of a program's own, as those of libraries for tokens are.
type ownClaims map[string][]string

type ownValues map[string]any

// No two attempts have a map in common: the runtime ends a process that writes to one concurrently.
func TestAttemptsShareNothingOfARequest(t *testing.T) {
	answers := func() mcp.InputResponseMap {
		return mcp.InputResponseMap{
			"elicitation": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"n": 1.0}},
			"roots":       &mcp.ListRootsResult{Roots: []*mcp.Root{{URI: "file:///a"}}},
			"sampling":    &mcp.CreateMessageResult{Role: "user", Model: "m", Content: &mcp.TextContent{Text: "yes"}},
		}
	}
	request := func() *mcp.CallToolRequest {
		return &mcp.CallToolRequest{
			Params: &mcp.CallToolParamsRaw{
				Name:           "x",
				Meta:           mcp.Meta{"a": map[string]any{"b": []any{map[string]any{"c": 1.0}}}, "nil": nil},
				InputResponses: answers(),
			},
			Extra: &mcp.RequestExtra{
				Header: http.Header{"X": {"1"}},
				TokenInfo: &auth.TokenInfo{
					Scopes: []string{"read"}, Extra: map[string]any{"claims": ownClaims{"sub": {"me"}}},
				},
			},
		}
	}
	change := func(req *mcp.CallToolRequest) {
		req.Params.Meta["a"].(map[string]any)["b"].([]any)[0].(map[string]any)["c"] = 2.0
		req.Params.InputResponses["elicitation"].(*mcp.ElicitResult).Content["n"] = 2.0
		req.Params.InputResponses["roots"].(*mcp.ListRootsResult).Roots[0].URI = "changed"
		req.Extra.Header["X"][0] = "2"
		req.Extra.TokenInfo.UserID, req.Extra.TokenInfo.Scopes[0] = "changed", "changed"
		req.Extra.TokenInfo.Extra["claims"].(ownClaims)["sub"][0] = "changed"
	}

	g := newGuard(t, resilience.Config{
		AttemptTimeout: 20 * time.Millisecond, Retry: fast,
		Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly, Timeout: testTimeout}},
	})
	release, abandoned := make(chan struct{}), make(chan struct{})
	handler := gosdk.Middleware(g)(func(ctx context.Context, _ string, req mcp.Request) (mcp.Result, error) {
		call := req.(*mcp.CallToolRequest)
		assert.Equal(t, request(), call)
		change(call)
		if resilience.Attempt(ctx) == 2 {
			return textResult("done"), nil
		}
		defer close(abandoned)
		for { // while it is abandoned, it continues to change its request
			select {
			case <-release:
				return nil, nil
			default:
				change(call)
			}
		}
	})

	original := request()
	res, err := handler(t.Context(), "tools/call", original)
	require.NoError(t, err)
	assert.Equal(t, "done", text(t, res.(*mcp.CallToolResult)))
	assert.Equal(t, request(), original, "which other middleware sees")
	close(release)
	<-abandoned
}

// What can't be copied of a request is there, too.
func TestAttemptMayCloseItsStream(t *testing.T) {
	closed := 0
	_, err := gosdk.Middleware(newGuard(t, resilience.Config{}))(
		func(_ context.Context, _ string, req mcp.Request) (mcp.Result, error) {
			req.GetExtra().CloseSSEStream(mcp.CloseSSEStreamArgs{})
			params := req.GetParams().(*mcp.CallToolParamsRaw)
			assert.Nil(t, params.Meta)
			assert.Equal(t, mcp.InputResponseMap{}, params.InputResponses)
			return textResult("done"), nil
		},
	)(t.Context(), "tools/call", &mcp.CallToolRequest{
		Params: &mcp.CallToolParamsRaw{Name: "x", InputResponses: mcp.InputResponseMap{}},
		Extra:  &mcp.RequestExtra{CloseSSEStream: func(mcp.CloseSSEStreamArgs) { closed++ }},
	})
	require.NoError(t, err)
	assert.Equal(t, 1, closed)
}

// A program's own answer that no JSON can hold is passed on.
func TestAnswerThatCannotBeCopiedIsPassedOn(t *testing.T) {
	answers := mcp.InputResponseMap{"q": &mcp.ElicitResult{Content: map[string]any{"f": func() {}}}}
	_, err := gosdk.Middleware(newGuard(t, resilience.Config{}))(
		func(_ context.Context, _ string, req mcp.Request) (mcp.Result, error) {
			assert.Same(t, answers["q"], req.GetParams().(*mcp.CallToolParamsRaw).InputResponses["q"])
			return textResult("done"), nil
		},
	)(t.Context(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x", InputResponses: answers}})
	require.NoError(t, err)
}

// An attempt that was abandoned may go on to use its request while the next one does, and after the call.
func TestAttemptsOfAClientShareNothingOfARequest(t *testing.T) {
	change := func(params *mcp.CallToolParams) {
		params.Meta["traceparent"], params.Meta["a"].(map[string]any)["b"] = "changed", 2
		arguments := params.Arguments.(map[string]any)
		arguments["n"].([]int)[0], arguments["rows"].([][]int)[0][0] = 2, 2
		arguments["typed"].(map[string]map[string]int)["a"]["b"] = 2
		arguments["mixed"].([]any)[1] = 2
		arguments["claims"].(map[string]any)["own"].(ownValues)["a"] = 2
		params.InputResponses["q"].(*mcp.ElicitResult).Content["n"] = 2.0
		params.RequestState = "changed"
	}
	newParams := func() *mcp.CallToolParams {
		return &mcp.CallToolParams{
			Name: "x", Meta: mcp.Meta{"a": map[string]any{"b": 1}}, Arguments: map[string]any{
				"n": []int{1}, "rows": [][]int{{1}, nil}, "typed": map[string]map[string]int{"a": {"b": 1}, "none": nil},
				"mixed": []any{nil, 1}, "claims": map[string]any{"own": ownValues{"a": 1, "none": nil}},
			},
			InputResponses: mcp.InputResponseMap{
				"q": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"n": 1.0}},
			},
		}
	}
	params, others := newParams(), newParams()
	for name, tc := range map[string]struct {
		req    mcp.Request
		params *mcp.CallToolParams
	}{
		"the SDK's":   {&mcp.ClientRequest[mcp.Params]{Params: params}, params},
		"a program's": {&mcp.ClientRequest[*mcp.CallToolParams]{Params: others}, others},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{
				AttemptTimeout: 20 * time.Millisecond, Retry: fast,
				Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly, Timeout: testTimeout}},
			})
			release, abandoned := make(chan struct{}), make(chan struct{})
			failure := gosdk.Failure(func(_ context.Context, req mcp.Request, _ *mcp.CallToolResult) error {
				defer close(abandoned)
				assert.Equal(t, newParams(), req.GetParams())
				return nil
			})
			call := gosdk.ClientMiddleware(g, failure)(func(ctx context.Context, _ string, req mcp.Request) (mcp.Result, error) {
				assert.IsType(t, tc.req, req)
				params := req.GetParams().(*mcp.CallToolParams)
				assert.Equal(t, newParams(), params)
				change(params)
				if resilience.Attempt(ctx) == 2 {
					return textResult("done"), nil
				}
				for {
					select {
					case <-release:
						return errorTextResult("late"), nil
					default:
						change(params)
					}
				}
			})

			_, err := call(t.Context(), "tools/call", tc.req)
			require.NoError(t, err)
			assert.Equal(t, newParams(), tc.params)
			change(tc.params)
			close(release)
			<-abandoned
		})
	}
}

// Other middleware may make requests of its own types.
func TestRequestOfAnUnknownTypeIsSentAsItIs(t *testing.T) {
	sent := &mcp.ServerRequest[*mcp.CallToolParams]{Params: &mcp.CallToolParams{Name: "x"}}
	call := gosdk.ClientMiddleware(newGuard(t, resilience.Config{}))(
		func(_ context.Context, _ string, req mcp.Request) (mcp.Result, error) {
			assert.Same(t, sent, req)
			return textResult("done"), nil
		})
	res, err := call(t.Context(), "tools/call", sent)
	require.NoError(t, err)
	assert.Equal(t, "done", text(t, res.(*mcp.CallToolResult)))
}

// What can't be sent is an error, as without a guard.
func TestArgumentsThatContainThemselvesFailTheirCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{}, nil)
		f.connect("", gosdk.ClientMiddleware(f.guard))
		arguments := map[string]any{}
		arguments["one"], arguments["other"] = arguments, []any{arguments}
		_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x", Arguments: arguments})
		assert.ErrorIs(t, err, resilience.CodeToolFailed)
	})
}

// Whatever is there twice is copied twice, and what contains itself is left as it is, however deep.
func TestArgumentsAreCopiedAtAnyDepth(t *testing.T) {
	for _, levels := range []int{1, 15, 16, 17, 18, 100} {
		innermost, cycle := []any{nil}, []any{nil, "kept"}
		cycle[0] = cycle
		list := innermost
		for range levels - 1 {
			list = []any{list}
			cycle = []any{cycle}
		}
		params := &mcp.CallToolParams{Name: "x", Arguments: map[string]any{
			"a": list, "b": list, "c": list, "cycle": cycle, // a request is copied twice
		}}
		inside := func(v any) []any {
			for range levels - 1 {
				v = v.([]any)[0]
			}
			return v.([]any)
		}

		call := gosdk.ClientMiddleware(newGuard(t, resilience.Config{}))(
			func(_ context.Context, _ string, req mcp.Request) (mcp.Result, error) {
				arguments := req.GetParams().(*mcp.CallToolParams).Arguments.(map[string]any)
				for _, copied := range arguments {
					inside(copied)[len(inside(copied))-1] = "changed"
				}
				assert.Same(t, &inside(cycle)[0], &inside(arguments["cycle"])[0].([]any)[0].([]any)[0])
				return textResult("done"), nil
			})
		_, err := call(t.Context(), "tools/call", &mcp.ClientRequest[*mcp.CallToolParams]{Params: params})
		require.NoError(t, err, "it has changed all")
		assert.Nil(t, innermost[0], "%d", levels)
		assert.Equal(t, "kept", inside(cycle)[1])
	}
}

// A gateway forwards arguments as it has received them.
func TestRawArgumentsAreCopied(t *testing.T) {
	arguments := json.RawMessage(`{"n":1}`)
	var received any
	call := gosdk.ClientMiddleware(newGuard(t, resilience.Config{}))(
		func(_ context.Context, _ string, req mcp.Request) (mcp.Result, error) {
			received = req.GetParams().(*mcp.CallToolParams).Arguments
			arguments[5] = '2' // as by a caller that has left
			return textResult("ok"), nil
		})
	_, err := call(t.Context(), "tools/call", &mcp.ClientRequest[mcp.Params]{
		Params: &mcp.CallToolParams{Name: "x", Arguments: arguments},
	})
	require.NoError(t, err)
	assert.Equal(t, json.RawMessage(`{"n":1}`), received)
}
