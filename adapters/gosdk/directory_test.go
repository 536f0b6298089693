package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// A lister replaces what a server does for tools/list.
type lister struct {
	before  func(context.Context) error // what it does first; may be nil
	takes   atomic.Int64                // nanoseconds; the context isn't respected
	running atomic.Int64
	most    int64 // that ran at the same time
	lists   int64
	mu      sync.Mutex
}

func (l *lister) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "tools/list" {
			defer l.running.Add(-1)
			running := l.running.Add(1)
			l.mu.Lock()
			l.lists++
			l.most = max(l.most, running)
			l.mu.Unlock()
			time.Sleep(time.Duration(l.takes.Load()))
			if l.before != nil {
				if err := l.before(ctx); err != nil {
					return nil, err
				}
			}
		}
		return next(ctx, method, req)
	}
}

func newListed(t *testing.T, cfg resilience.Config) (*fixture, *lister) {
	f, l := newFixture(t, cfg, nil), &lister{}
	f.server.AddReceivingMiddleware(l.middleware)
	gosdk.Protect(f.server, f.guard)
	return f, l
}

func TestListThatHangsDelaysNoCallAndCollectsNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 50 * time.Millisecond
		f, l := newListed(t, resilience.Config{
			Timeouts:     resilience.Timeouts{resilience.Quick: limit},
			Tools:        map[string]resilience.Tool{"listed hangs": {}},
			Breaker:      resilience.BreakerConfig{Failures: 1000},
			MaxAbandoned: 1000,
		})
		l.takes.Store(int64(time.Hour))
		hang := func(context.Context) error { time.Sleep(time.Hour); return nil }
		f.typed("hangs", readOnly, hang)
		f.typed("listed hangs", readOnly, hang)
		f.typed("fails", readOnly, func(context.Context) error { return errBoom })
		f.typed("works", readOnly, succeed)
		f.connect("")

		for i := range 500 {
			for _, tool := range []string{"hangs", "listed hangs", "fails", "works", fmt.Sprint("made up ", i)} {
				start := time.Now()
				_, _ = f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in{}})
				assert.LessOrEqual(t, time.Since(start), limit, tool)
			}
		}
		assert.EqualValues(t, 4, l.most)

		start := time.Now()
		assert.False(t, f.call("works").IsError)
		assert.Zero(t, time.Since(start), "it is known by now that the list hangs")

		l.takes.Store(0)
		time.Sleep(2 * time.Hour)
		f.call("fails")
		synctest.Wait()
		assert.Equal(t, resilience.CodeRetryExhausted, metadataOf(t, f.call("fails")).Code,
			"since the list has come back, the tool is known to be read-only")
	})
}

func TestListThatIsSlowerThanACallIsKeptForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newListed(t, resilience.Config{
			Timeouts: resilience.Timeouts{resilience.Quick: 50 * time.Millisecond},
		})
		l.takes.Store(int64(200 * time.Millisecond))
		f.typed("x", nil, succeed)
		f.connect("")

		start := time.Now()
		f.call("x")
		assert.Equal(t, 25*time.Millisecond, time.Since(start), "half of what the call has")
		time.Sleep(time.Second)
		start = time.Now()
		f.call("x")
		assert.Zero(t, time.Since(start))
		health := f.guard.Health()
		require.Len(t, health, 1)
		assert.Equal(t, "x", health[0].Tool)
	})
}

// One tool's outage never shuts another one because the list comes late, or never.
func TestToolsHaveBreakersOfTheirOwnWithoutAList(t *testing.T) {
	for name, list := range map[string]func(context.Context) error{
		"late":           func(context.Context) error { time.Sleep(5 * time.Second); return nil },
		"late, respects": func(ctx context.Context) error { return waitFor(ctx, 300*time.Millisecond) },
		"fails":          func(context.Context) error { return errBoom },
		"hangs":          func(context.Context) error { time.Sleep(time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, l := newListed(t, resilience.Config{})
				l.before = list
				f.typed("broken", readOnly, func(context.Context) error { return resilience.MarkPermanent(errBoom) })
				f.typed("fails", readOnly, func(context.Context) error { return errBoom })
				f.typed("healthy", nil, succeed)
				f.connect("")

				for range 20 {
					f.call("broken")
					time.Sleep(50 * time.Millisecond)
				}
				assert.False(t, f.call("healthy").IsError)
				synctest.Wait()
				assert.EqualValues(t, 1, l.most)

				time.Sleep(6 * time.Second)
				synctest.Wait()
				if strings.HasPrefix(name, "late") {
					code := metadataOf(t, f.call("fails")).Code
					assert.Equal(t, resilience.CodeRetryExhausted, code, "it is read-only")
					_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "made up"})
					assert.Error(t, err)
					assert.Equal(t, "(others)", f.guard.Health()[0].Tool)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// waitFor waits for d, or until ctx ends.
func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func TestCallerThatLeavesDoesNotWaitForTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newListed(t, resilience.Config{})
		l.takes.Store(int64(200 * time.Millisecond))
		ended := make(chan time.Duration, 1)
		f.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "tools/call" {
					start := time.Now()
					defer func() { ended <- time.Since(start) }()
				}
				return next(ctx, method, req)
			}
		})
		f.typed("x", nil, succeed)
		f.connect("")

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := f.session.CallTool(ctx, &mcp.CallToolParams{Name: "x"})
		require.Error(t, err)
		assert.Equal(t, 10*time.Millisecond, <-ended)
		time.Sleep(time.Second)
	})
}

// Each call needs a list that is no older than the call itself, and many may share one.
func TestCallsAtTheSameTimeShareLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newListed(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1000}})
		l.takes.Store(int64(time.Millisecond))
		f.typed("x", readOnly, func(context.Context) error { return resilience.MarkPermanent(errBoom) })
		f.connect("")

		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { f.call("x") })
		}
		wg.Wait()
		health := f.guard.Health()
		require.Len(t, health, 1)
		assert.Equal(t, "x", health[0].Tool)
		assert.LessOrEqual(t, l.lists, int64(4), "two to find the tool, two for its effect")
	})
}
