package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMadeUpNamesShareOneBreaker(t *testing.T) {
	f := newProtected(t, resilience.Config{})
	f.typed("real", nil, succeed)
	f.connect("")
	f.call("real")
	for i := range 50 {
		_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: fmt.Sprint("made-up-", i)})
		require.Error(t, err)
	}
	health := f.guard.Health()
	require.Len(t, health, 2)
	assert.Equal(t, "(others)", health[0].Tool)
	assert.Zero(t, health[0].ConsecutiveFailures)
}

func TestAnnotationsDecideWhatIsRetried(t *testing.T) {
	f := newProtected(t, resilience.Config{
		Tools:   map[string]resilience.Tool{"listed": {Effect: resilience.ReadOnly}},
		Breaker: resilience.BreakerConfig{Failures: 100},
	})
	var runs atomic.Int64
	fail := failing(&runs)
	f.typed("none", nil, fail)
	f.typed("read-only", readOnly, fail)
	f.typed("idempotent", &mcp.ToolAnnotations{IdempotentHint: true}, fail)
	f.typed("not", &mcp.ToolAnnotations{}, fail)
	f.typed("listed", nil, fail)
	f.connect("")

	count := func(tool string) int64 {
		runs.Store(0)
		f.call(tool)
		return runs.Load()
	}
	for tool, want := range map[string]int64{"none": 1, "read-only": 4, "idempotent": 4, "not": 1, "listed": 4} {
		assert.Equal(t, want, count(tool), tool)
	}
	res := f.call("read-only")
	assert.Equal(t, errBoom.Error(), text(t, res), "after the last attempt, its own result")
	assert.Equal(t, resilience.CodeRetryExhausted, metadataOf(t, res).Code)

	// Tools that are changed, added or removed while the server runs are noticed.
	f.typed("none", readOnly, fail)
	assert.EqualValues(t, 4, count("none"))
	f.typed("new", readOnly, fail)
	assert.EqualValues(t, 4, count("new"))
	f.server.RemoveTools("new")
	assert.EqualValues(t, jsonrpc.CodeInvalidParams, f.protocolError("new").Code)
}

func TestToolsOnLaterPagesAreFound(t *testing.T) {
	f := newFixture(t, resilience.Config{}, &mcp.ServerOptions{PageSize: 3})
	f.server.AddReceivingMiddleware(gosdk.Middleware(f.guard)) // without Protect
	var runs atomic.Int64
	for i := range 10 {
		f.typed(fmt.Sprint("t", i), readOnly, failing(&runs))
	}
	f.connect("")
	f.call("t9")
	assert.EqualValues(t, 4, runs.Load())
}

// Other middleware may do anything to tools/list. The tools stay guarded, and no reply waits for it.
func TestAnyListLeavesToolsGuarded(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, list := range map[string]func() (mcp.Result, error){
		"refused": func() (mcp.Result, error) { return nil, errors.New("not you") },
		"hidden":  func() (mcp.Result, error) { return &mcp.ListToolsResult{}, nil },
		"nothing": func() (mcp.Result, error) { return nil, nil },
		"hangs":   func() (mcp.Result, error) { <-hang; return nil, nil },
		"panics":  func() (mcp.Result, error) { panic("list") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, resilience.Config{
				Timeouts: resilience.Timeouts{resilience.Quick: 30 * time.Millisecond},
				Tools:    map[string]resilience.Tool{"listed": {}},
			}, nil)
			f.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					if method == "tools/list" {
						return list()
					}
					return next(ctx, method, req)
				}
			})
			gosdk.Protect(f.server, f.guard)
			for _, tool := range []string{"listed", "other"} {
				f.typed(tool, nil, func(context.Context) error { <-hang; return nil })
			}
			f.connect("")

			for _, tool := range []string{"listed", "other"} {
				assert.Equal(t, resilience.CodeTimeout, metadataOf(t, f.call(tool)).Code, tool)
			}
		})
	}
}
