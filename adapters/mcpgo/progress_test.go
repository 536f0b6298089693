package mcpgo_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
)

// collectProgress collects the progress notifications that c receives. The function that it
// returns waits for those that are under way.
func collectProgress(c *client.Client) func() []map[string]any {
	var mu sync.Mutex
	var received []map[string]any
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == "notifications/progress" {
			mu.Lock()
			defer mu.Unlock()
			received = append(received, n.Params.AdditionalFields)
		}
	})

	return func() []map[string]any {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return received
	}
}

func values(received []map[string]any) (values []float64) {
	for _, n := range received {
		values = append(values, n["progress"].(float64))
	}
	return values
}

// report reports each of the values from a tool.
func report(ctx context.Context, t *testing.T, req mcp.CallToolRequest, values ...float64) {
	for _, v := range values {
		assert.NoError(t, mcpgo.NotifyProgress(ctx, req, v, 0, ""))
	}
}

// withToken returns the _meta of a request whose client asks for progress.
func withToken(token any) map[string]any { return map[string]any{"progressToken": token} }

func TestProgressRestartsTheTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		meta     map[string]any
		reports  int
		interval time.Duration
		code     resilience.Code
		want     []float64
	}{
		"in time": {
			meta: withToken("p"), reports: 5, interval: 9 * time.Second,
			want: []float64{0, 1, 2, 3, 4},
		},
		"the client doesn't ask for progress": {reports: 5, interval: 9 * time.Second},
		"too slow": {
			meta: withToken("p"), reports: 5, interval: 11 * time.Second,
			code: resilience.CodeTimeout, want: []float64{0},
		},
		"beyond MaxTimeout": {
			meta: withToken("p"), reports: 1000, interval: 8 * time.Second,
			code: resilience.CodeTimeout, want: []float64{0, 1, 2, 3, 4, 5, 6, 7},
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s := newServer(newGuard(t, onlyX(resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: time.Minute})))
			handler := func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				for i := range tc.reports {
					report(ctx, t, req, float64(i))
					select {
					case <-time.After(tc.interval):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return done, nil
			}
			s.AddTool(mcp.NewTool("x"), handler)
			c := connect(t, s)
			received := collectProgress(c)

			res := callTool(t, c, "x", nil, tc.meta)
			assert.Equal(t, tc.code, errorIn(t, res).Code)
			assert.Equal(t, tc.want, values(received()))
		})
	}
}

// MCP requires progress to increase, so a retry doesn't repeat what was sent. Each request starts anew. Within an
// attempt, progress is the tool's affair.
func TestRetryDoesNotRepeatProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newGuard(t, resilience.Config{}))
		s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if resilience.Attempt(ctx) == 1 {
				report(ctx, t, req, -1, 2, 2, 1, 3)
				return nil, resilience.MarkNoEffect(errBackend)
			}
			report(ctx, t, req, 1, 2, 3, 4)
			return done, nil
		})
		c := connect(t, s)
		received := collectProgress(c)

		callTool(t, c, "x", nil, withToken("a"))
		callTool(t, c, "x", nil, withToken("b"))
		got := received()
		assert.Equal(t, []float64{-1, 2, 2, 1, 3, 4, -1, 2, 2, 1, 3, 4}, values(got))
		assert.Equal(t, "a", got[0]["progressToken"])
		assert.Equal(t, "b", got[11]["progressToken"])
	})
}

// MCP requires progress to stop with the result.
func TestProgressAfterTheTimeoutIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newGuard(t, onlyX(resilience.Tool{Timeout: time.Second})))
		s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			report(ctx, t, req, 1)
			time.Sleep(1500 * time.Millisecond) // ignores its context
			report(ctx, t, req, 50)
			return done, nil
		})
		c := connect(t, s)
		received := collectProgress(c)

		callTool(t, c, "x", nil, withToken("p"))
		time.Sleep(time.Hour)
		assert.Equal(t, []float64{1}, values(received()))
	})
}

func TestProgressParams(t *testing.T) {
	type params = map[string]any
	for name, tc := range map[string]struct {
		progress, total float64
		message         string
		want            params // nil means an error
	}{
		"all":               {1, 2, "half", params{"progress": 1.0, "total": 2.0, "message": "half"}},
		"not a number":      {math.NaN(), 2, "", nil},
		"a negative total":  {1, -2, "", params{"progress": 1.0}},
		"an infinite total": {1, math.Inf(1), "", nil},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s := newServer(newGuard(t, resilience.Config{}))
			handler := func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				err := mcpgo.NotifyProgress(ctx, req, tc.progress, tc.total, tc.message)
				assert.Equal(t, tc.want == nil, err != nil)
				if err != nil {
					assert.Equal(t, resilience.ClassNeutral, resilience.Classify(err), "it isn't the backend's")
				}
				return done, nil
			}
			s.AddTool(mcp.NewTool("x"), handler)
			c := connect(t, s)
			received := collectProgress(c)

			assert.Equal(t, "done", text(t, callTool(t, c, "x", nil, withToken("p"))))
			if tc.want == nil {
				assert.Empty(t, received())
				return
			}
			tc.want["progressToken"] = "p"
			assert.Equal(t, []map[string]any{tc.want}, received())
		})
	}
}

func TestProgressThatIsNotSentIsAnError(t *testing.T) {
	s := newServer(newGuard(t, resilience.Config{}))
	s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := mcpgo.NotifyProgress(ctx, req, 1, 0, "")
		assert.ErrorIs(t, err, server.ErrNotificationNotInitialized)
		assert.Equal(t, resilience.ClassNeutral, resilience.Classify(err), "it isn't the backend's")
		return done, nil
	})
	params := map[string]any{"name": "x", "_meta": withToken(1)}
	_, code := handle(s.WithContext(t.Context(), newWire(s)), t, s, "tools/call", 1, params)
	assert.Zero(t, code)
}
