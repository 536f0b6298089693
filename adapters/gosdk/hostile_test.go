package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
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

// typedNil is an old mistake: a nil pointer that is returned as an error.
type typedNil struct{ cause error }

func (e *typedNil) Error() string { return "typed nil" }
func (e *typedNil) Unwrap() error { return e.cause }

// Nothing that a client sends or a handler does may end the process.
func TestNothingEndsTheProcess(t *testing.T) {
	for _, protocol := range protocols {
		f := newServer(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 100}})
		var none *typedNil
		f.raw("fine", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: []any{1}, Progress: 1})
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "fine"}}}, nil
		})
		f.raw("nothing", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
		f.raw("raw-typed-nil", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, none })
		f.typed("typed-nil", nil, func(context.Context) error { return none })
		f.typed("panics-typed-nil", nil, func(context.Context) error { panic(none) })
		f.typed("panics-wire", nil, func(context.Context) error { panic(&jsonrpc.Error{Code: 1, Message: "hunter2"}) })
		f.connect(protocol)
		res := f.call("fine", mcp.Meta{"progressToken": map[string]any{"a": 1}})
		assert.Equal(t, "fine", text(t, res), "an odd token is ignored")
		for _, tool := range []string{"nothing", "raw-typed-nil", "typed-nil", "panics-typed-nil", "panics-wire"} {
			res := f.call(tool)
			assert.True(t, res.IsError, tool)
			assert.Equal(t, resilience.CodeToolFailed, adviceOf(t, res).Code, tool)
			b, _ := json.Marshal(res)
			assert.NotContains(t, string(b), "hunter2", tool)
		}
	}
}

// A typed handler's error that wraps a protocol error, as a gateway's does, is a result.
func TestWrappedProtocolError(t *testing.T) {
	f := newServer(t, resilience.Config{})
	f.typed("gateway", nil, func(context.Context) error {
		return fmt.Errorf("upstream: %w", &jsonrpc.Error{Code: -32000, Message: "down"})
	})
	f.connect("")
	res := f.call("gateway")
	assert.Equal(t, "upstream: down", text(t, res))
	assert.Equal(t, resilience.CodeToolFailed, adviceOf(t, res).Code)
}

// What other middleware does to tools/list takes no tool out of the guard, and holds up no
// answer.
func TestOddLists(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, list := range map[string]func(mcp.Result) (mcp.Result, error){
		"refused": func(mcp.Result) (mcp.Result, error) { return nil, errors.New("not you") },
		"hidden":  func(mcp.Result) (mcp.Result, error) { return &mcp.ListToolsResult{}, nil },
		"nothing": func(mcp.Result) (mcp.Result, error) { return nil, nil },
		"hangs":   func(mcp.Result) (mcp.Result, error) { <-hang; return nil, nil },
		"panics":  func(mcp.Result) (mcp.Result, error) { panic("list") },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fixture{T: t, server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}
			f.guard = resilience.Must(resilience.New(resilience.Config{
				Timeouts: map[resilience.Tier]time.Duration{resilience.Quick: 30 * time.Millisecond},
				Tools:    map[string]resilience.Tool{"listed": {}},
			}))
			f.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					res, err := next(ctx, method, req)
					if method == "tools/list" {
						return list(res)
					}
					return res, err
				}
			})
			gosdk.Protect(f.server, f.guard)
			for _, tool := range []string{"listed", "other"} {
				f.typed(tool, nil, func(context.Context) error { <-hang; return nil })
			}
			f.connect("")
			for _, tool := range []string{"listed", "other"} {
				assert.Equal(t, resilience.CodeTimeout, adviceOf(t, f.call(tool)).Code, tool)
			}
		})
	}
}

// Each attempt gets the request as it came.
func TestAttemptsShareNoArguments(t *testing.T) {
	f := newServer(t, resilience.Config{AttemptTimeout: 20 * time.Millisecond})
	var seen atomic.Value
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	f.raw("raw", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		seen.Store(string(req.Params.Arguments))
		req.Params.Arguments[1] = 'X'
		req.Params.Name = "changed"
		if resilience.Attempt(ctx) == 1 {
			for { // given up on, it goes on changing its own
				select {
				case <-release:
					return nil, nil
				default:
					req.Params.Arguments[2]++
				}
			}
		}
		return nil, errBoom
	})
	f.connect("")
	res := f.call("raw")
	assert.Equal(t, resilience.CodeRetryExhausted, adviceOf(t, res).Code)
	assert.Equal(t, `{"n":1}`, seen.Load())
}

// A client under a guard takes a server under a guard at its word.
func TestGuardsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newServer(t, resilience.Config{})
		var runs atomic.Int64
		f.typed("down", nil, func(context.Context) error { runs.Add(1); return errBoom })
		f.typed("mistake", nil, func(context.Context) error {
			return &resilience.Error{Code: resilience.CodeValidation, Message: "No such row"}
		})
		serverSide, clientSide := mcp.NewInMemoryTransports()
		_, err := f.server.Connect(t.Context(), serverSide, nil)
		require.NoError(t, err)
		g := resilience.Must(resilience.New(resilience.Config{
			Timeouts: map[resilience.Tier]time.Duration{resilience.Quick: 10 * time.Second},
			Effect:   resilience.ReadOnly,
			Retry:    fast,
			Breaker:  resilience.BreakerConfig{Failures: 100},
		}))
		client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
		client.AddSendingMiddleware(gosdk.ClientMiddleware(g))
		f.session, err = client.Connect(t.Context(), clientSide, nil)
		require.NoError(t, err)
		t.Cleanup(func() { f.session.Close() })

		for range 5 {
			assert.Equal(t, resilience.CodeToolFailed, adviceOf(t, f.call("down")).Code)
		}
		assert.EqualValues(t, 5, runs.Load(), "it says that it must not be repeated")
		failures := g.Health()[0].ConsecutiveFailures
		a := adviceOf(t, f.call("down"))
		assert.Equal(t, resilience.CodeCircuitOpen, a.Code)
		assert.Equal(t, 30, a.RetryAfter, "which doesn't fit into the 10s that a call has here")
		assert.Greater(t, g.Health()[0].ConsecutiveFailures, failures)
		for range 3 {
			assert.Equal(t, resilience.CodeValidation, adviceOf(t, f.call("mistake")).Code)
		}
		assert.Zero(t, g.Health()[1].ConsecutiveFailures, "the caller's mistake there is one here")
	})
}
