package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everyKind returns a fixture with a tool of every kind. isError is the result of "raw-is-error".
func everyKind(t *testing.T, protocol string) (f *fixture, isError *mcp.CallToolResult) {
	// Only tools that hang have a short timeout. The others have all the time that they need.
	hangs := resilience.Tool{Timeout: 50 * time.Millisecond, Effect: resilience.NonIdempotent}
	f = newProtected(t, resilience.Config{
		Tools:   map[string]resilience.Tool{"typed-hang": hangs, "raw-hang": hangs},
		Breaker: resilience.BreakerConfig{Failures: 100},
	})
	fine := textResult("fine")
	isError = failedResult("no such row")
	isError.Meta = mcp.Meta{"mine": "kept"}
	hung := make(chan struct{})

	f.typed("typed", nil, succeed)
	f.typed("typed-error", nil, func(context.Context) error { return errBoom })
	f.typed("typed-panic", nil, func(context.Context) error { panic(errBoom) })
	f.typed("typed-exit", nil, func(context.Context) error { runtime.Goexit(); return nil })
	f.typed("typed-hang", nil, func(context.Context) error { <-hung; return nil })
	f.raw("raw", nil, returns(fine, nil))
	f.raw("raw-is-error", nil, returns(isError, nil))
	f.raw("raw-error", nil, returns(nil, errBoom))
	f.raw("raw-hang", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-hung
		return fine, nil
	})
	f.raw("raw-wire", nil, returns(nil, &jsonrpc.Error{Code: -32050, Message: "on purpose"}))

	f.connect(protocol)
	t.Cleanup(func() { close(hung) }) // before the session is closed, which waits for the handlers
	return f, isError
}

func TestEveryResultIsTheToolsOwnOrTheError(t *testing.T) {
	const check = "It may have taken effect: check before you call it again."
	eachProtocol(t, func(t *testing.T, protocol string) {
		f, isError := everyKind(t, protocol)
		for tool, want := range map[string]struct {
			code       resilience.Code // empty for a success
			text       string
			guidance   string
			structured bool
		}{
			"typed":        {"", `{"v":"fine"}`, "", true},
			"typed-error":  {resilience.CodeToolFailed, errBoom.Error(), check, false},
			"typed-panic":  {resilience.CodeToolFailed, "TOOL_FAILED: failed. " + check, "", false},
			"typed-exit":   {resilience.CodeToolFailed, "TOOL_FAILED: failed. " + check, "", false},
			"typed-hang":   {resilience.CodeTimeout, "TIMEOUT: exceeded timeout of 50ms. " + check, "", false},
			"raw":          {"", "fine", "", false},
			"raw-is-error": {resilience.CodeToolFailed, "no such row", check, false},
			"raw-hang":     {resilience.CodeTimeout, "TIMEOUT: exceeded timeout of 50ms. " + check, "", true},
		} {
			res := f.call(tool)
			wire := jsonOf(t, res)
			if protocol == latest {
				assert.Contains(t, wire, `"resultType":"complete"`, tool)
			} else {
				assert.NotContains(t, wire, "resultType", tool)
			}

			assert.Equal(t, want.code != "", res.IsError, tool)
			assert.Equal(t, want.structured, res.StructuredContent != nil, tool)
			assert.Equal(t, want.text, text(t, res), tool)
			assert.Equal(t, want.guidance, guidanceOf(t, res), tool)
			if want.code == "" {
				assert.NotContains(t, res.Meta, resilience.MetaError, tool)
				continue
			}

			m := metadataOf(t, res)
			assert.Equal(t, want.code, m.Code, tool)
			assert.False(t, m.Retryable, "%s: by MCP's default it must not be repeated", tool)
			assert.Equal(t, want.text == errBoom.Error(), strings.Contains(wire, "10.0.0.7"), tool)
			if want.structured {
				assert.JSONEq(t, jsonOf(t, res.Meta[resilience.MetaError]), jsonOf(t, res.StructuredContent), tool)
			}
		}

		assert.Equal(t, "kept", f.call("raw-is-error").Meta["mine"])
		assert.NotContains(t, isError.Meta, resilience.MetaError, "the tool's own result is never changed")
	})
}

func TestProtocolErrorsAndOtherMethodsPassUnchanged(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		f, _ := everyKind(t, protocol)
		wire := f.protocolError("raw-wire")
		assert.EqualValues(t, -32050, wire.Code)
		assert.Equal(t, "on purpose", wire.Message)
		assert.EqualValues(t, jsonrpc.CodeInvalidParams, f.protocolError("no-such-tool").Code)
		assert.Equal(t, errBoom.Error(), f.protocolError("raw-error").Message)

		list, err := f.session.ListTools(t.Context(), nil)
		require.NoError(t, err)
		assert.Len(t, list.Tools, 10)
	})
}

// A call without a tool is the SDK's affair, and so is another method with the request of a call.
func TestRequestsWithoutAToolPassUnchanged(t *testing.T) {
	of := func(g *resilience.Guard) mcp.Middleware { return gosdk.Middleware(g) }
	byClient := func(g *resilience.Guard) mcp.Middleware { return gosdk.ClientMiddleware(g) }
	x := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x"}}
	clients := &mcp.ClientRequest[*mcp.CallToolParams]{Params: &mcp.CallToolParams{Name: "x"}}
	for name, tc := range map[string]struct {
		guarded func(*resilience.Guard) mcp.Middleware
		method  string
		req     mcp.Request
	}{
		"no params":              {of, "tools/call", &mcp.CallToolRequest{}},
		"no name":                {of, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{}}},
		"another method":         {of, "tools/other", x},
		"another type":           {of, "tools/call", &mcp.ListToolsRequest{}},
		"a client's, no params":  {byClient, "tools/call", &mcp.ClientRequest[*mcp.CallToolParams]{}},
		"a client's, to list":    {byClient, "tools/list", clients},
		"a client's, other type": {byClient, "tools/call", &mcp.ClientRequest[*mcp.ListToolsParams]{}},
	} {
		g := newGuard(t, resilience.Config{})
		res, err := tc.guarded(g)(func(_ context.Context, method string, req mcp.Request) (mcp.Result, error) {
			assert.Equal(t, tc.method, method, name)
			assert.Same(t, tc.req, req, name)
			return nil, errBoom
		})(t.Context(), tc.method, tc.req)
		assert.Nil(t, res, name)
		assert.Same(t, errBoom, err, name)
		assert.Empty(t, g.Health(), name)
	}
}

// A guard's answer is structured only where it is known that no schema forbids that.
func TestAnswerIsStructuredIfNoSchemaForbidsThat(t *testing.T) {
	list := &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: "free"}, {Name: "schema", OutputSchema: map[string]any{}}}}
	for _, known := range []bool{true, false} {
		next := func(_ context.Context, method string, _ mcp.Request) (mcp.Result, error) {
			if method == "tools/list" && known {
				return list, nil
			}
			return nil, nil
		}
		for _, tool := range []string{"free", "schema", "made up"} {
			res, err := gosdk.Middleware(newGuard(t, resilience.Config{}))(next)(t.Context(), "tools/call",
				&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool}})
			require.NoError(t, err)
			assert.Equal(t, known && tool == "free", res.(*mcp.CallToolResult).StructuredContent != nil, tool)
		}
	}
}

// What the guard has nothing to say of reaches other middleware as it is.
func TestErrorOfAHandlerIsReturnedAsItIs(t *testing.T) {
	for _, own := range []error{
		errors.New("no such row"), fmt.Errorf("read: %w", &jsonrpc.Error{Code: -32050, Message: "no such row"}),
	} {
		next := func(context.Context, string, mcp.Request) (mcp.Result, error) { return nil, own }
		_, err := gosdk.Middleware(newGuard(t, resilience.Config{}))(next)(t.Context(), "tools/call",
			&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x"}})
		assert.Same(t, own, err)
	}
}

func TestToolThatReturnsNothingIsSaidToDoSo(t *testing.T) {
	var ended resilience.CallEnd
	f := newProtected(t, resilience.Config{Observers: []resilience.Observer{{
		End: func(_ context.Context, e resilience.CallEnd) { ended = e },
	}}})
	f.raw("x", nil, returns(nil, nil))
	f.connect("")
	res := f.call("x")
	require.NoError(t, f.guard.Flush(t.Context()))
	assert.ErrorContains(t, errors.Unwrap(ended.Err), "neither a result nor an error")
	const unknown = "It may have taken effect: check before you call it again."
	assert.Equal(t, "TOOL_FAILED: failed. "+unknown, text(t, res))
}

// An error of a typed handler that wraps a protocol error, as that of a gateway does, is a result.
func TestWrappedProtocolErrorIsAResult(t *testing.T) {
	f := newProtected(t, resilience.Config{})
	f.typed("gateway", nil, func(context.Context) error {
		return fmt.Errorf("upstream: %w", &jsonrpc.Error{Code: -32000, Message: "down"})
	})
	f.connect("")
	res := f.call("gateway")
	assert.Equal(t, "upstream: down", text(t, res))
	assert.NotContains(t, res.Meta, resilience.MetaError, "whose fault it was isn't known")
}

func TestNoRequestAndNoHandlerEndsTheProcess(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		f := newProtected(t, resilience.Config{})
		f.raw("fine", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			_ = gosdk.NotifyProgress(ctx, req, 1, 0, "")
			return textResult("fine"), nil
		})
		f.typed("panics", nil, func(context.Context) error { panic(&jsonrpc.Error{Code: 1, Message: "hunter2"}) })
		f.connect(protocol)

		res := f.call("fine", mcp.Meta{"progressToken": map[string]any{"a": 1}})
		assert.Equal(t, "fine", text(t, res), "a token that MCP doesn't allow, and that can't be compared")
		res = f.call("panics")
		assert.Equal(t, resilience.CodeToolFailed, metadataOf(t, res).Code)
		assert.NotContains(t, jsonOf(t, res), "hunter2")
	})
}

func TestBreakerRejectsCallsAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{})
		f.typed("typed", nil, func(context.Context) error { return errBoom })
		f.connect("")
		for range 5 {
			assert.Equal(t, resilience.CodeToolFailed, metadataOf(t, f.call("typed")).Code)
		}
		m := metadataOf(t, f.call("typed"))
		assert.Equal(t, resilience.CodeCircuitOpen, m.Code)
		assert.True(t, m.Retryable)
		assert.Equal(t, 30, m.RetryAfter)

		time.Sleep(time.Second)
		start := time.Now()
		m = metadataOf(t, f.call("typed"))
		assert.Equal(t, 10*time.Second, time.Since(start), "an agent that doesn't wait is held")
		assert.Equal(t, 19, m.RetryAfter)

		f.connect("")
		start = time.Now()
		assert.Equal(t, resilience.CodeCircuitOpen, metadataOf(t, f.call("typed")).Code)
		assert.Zero(t, time.Since(start), "another session is another agent")
	})
}

func TestClientsCancelReachesTheToolAndDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{})
		started, stopped := make(chan struct{}), make(chan error, 1)
		f.typed("typed", readOnly, func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return ctx.Err()
		})
		f.connect("")

		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-started; cancel() }()
		_, err := f.session.CallTool(ctx, &mcp.CallToolParams{Name: "typed", Arguments: in{}})
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, <-stopped, resilience.CodeCanceled)
		synctest.Wait()
		assert.Zero(t, f.guard.Health()[0].InFlight)
		assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
	})
}

func TestObserverReceivesTheRequest(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		synctest.Test(t, func(t *testing.T) {
			var request resilience.RequestInfo
			var ends []resilience.CallEnd
			f := newProtected(t, resilience.Config{Observers: []resilience.Observer{{
				Start: func(_ context.Context, e resilience.CallStart) context.Context {
					request = e.Request
					return nil
				},
				End: func(_ context.Context, e resilience.CallEnd) { ends = append(ends, e) },
			}}})
			f.typed("x", nil, succeed)
			f.connect(protocol)
			f.call("x", mcp.Meta{"traceparent": "00-1-2-01"})
			require.NoError(t, f.guard.Flush(t.Context()))

			assert.Equal(t, "tools/call", request.Method)
			assert.Equal(t, protocol, request.Protocol)
			assert.Equal(t, "00-1-2-01", request.Meta["traceparent"])
			assert.False(t, request.Client)
			require.Len(t, ends, 1)
			assert.Nil(t, ends[0].Err)
			assert.False(t, ends[0].Unfinished)
		})
	})
}

func TestNilServerOrGuardPanics(t *testing.T) {
	assert.PanicsWithValue(t, "resilience: gosdk: nil *Guard", func() { gosdk.Middleware(nil) })
	assert.PanicsWithValue(t, "resilience: gosdk: nil *Guard", func() { gosdk.ClientMiddleware(nil) })
	assert.PanicsWithValue(t, "resilience: gosdk: nil *mcp.Server", func() { gosdk.Protect(nil, nil) })
}
