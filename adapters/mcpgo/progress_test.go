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
	"github.com/stretchr/testify/require"
)

// listen collects the progress that a client hears of. Wait before you read it.
func listen(c *client.Client) func() []map[string]any {
	var mu sync.Mutex
	var heard []map[string]any
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == "notifications/progress" {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, n.Params.AdditionalFields)
		}
	})
	return func() []map[string]any {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return heard
	}
}

func values(heard []map[string]any) (got []float64) {
	for _, n := range heard {
		got = append(got, n["progress"].(float64))
	}
	return got
}

func report(ctx context.Context, t *testing.T, req mcp.CallToolRequest, values ...float64) {
	for _, v := range values {
		assert.NoError(t, mcpgo.NotifyProgress(ctx, req, v, 0, ""))
	}
}

var done = mcp.NewToolResultText("done")

// Progress restarts the limit, whether or not the client wants to hear of it.
func TestProgressRestartsTheLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		meta map[string]any
		each time.Duration
		code resilience.Code
		want []float64
	}{
		"in time":              {meta: map[string]any{"progressToken": "p"}, each: 9 * time.Second, want: []float64{0, 1, 2, 3, 4}},
		"nobody wants to know": {each: 9 * time.Second},
		"too slow":             {meta: map[string]any{"progressToken": "p"}, each: 11 * time.Second, code: resilience.CodeTimeout, want: []float64{0}},
		"for ever":             {meta: map[string]any{"progressToken": "p"}, each: 8 * time.Second, code: resilience.CodeTimeout, want: []float64{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 5
				if name == "for ever" {
					n = 1000
				}
				s := newServer(newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: 10 * time.Second, MaxTimeout: time.Minute}}}))
				s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for i := range n {
						report(ctx, t, req, float64(i))
						select {
						case <-time.After(tc.each):
						case <-ctx.Done():
							return nil, ctx.Err()
						}
					}
					return done, nil
				})
				c := connect(t, s, nil)
				defer c.Close()
				heard := listen(c)
				res, err := c.CallTool(t.Context(), request("x", nil, tc.meta))
				require.NoError(t, err)
				assert.Equal(t, tc.code, advised(t, res).Code)
				assert.Equal(t, tc.want, values(heard()))
			})
		})
	}
}

// MCP wants progress to increase, also where the server tries again. Each request begins
// anew, also where somebody keeps the chain of handlers.
func TestProgressNeverFalls(t *testing.T) {
	for name, kept := range map[string]bool{"a chain for each request": false, "one chain for all": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guarded := mcpgo.Middleware(newGuard(t, resilience.Config{}))
				var chain server.ToolHandlerFunc
				s := server.NewMCPServer("test", "1", server.WithToolHandlerMiddleware(func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
					if chain == nil || !kept {
						chain = guarded(next)
					}
					return chain
				}))
				s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if resilience.Attempt(ctx) == 1 {
						report(ctx, t, req, -1, 2, 2, 1, 3)
						return nil, resilience.MarkTransient(errBackend)
					}
					report(ctx, t, req, 1, 2, 3, 4)
					return done, nil
				})
				c := connect(t, s, nil)
				defer c.Close()
				heard := listen(c)
				for _, token := range []string{"a", "b"} {
					_, err := c.CallTool(t.Context(), request("x", nil, map[string]any{"progressToken": token}))
					require.NoError(t, err)
				}
				got := heard()
				assert.Equal(t, []float64{-1, 2, 3, 4, -1, 2, 3, 4}, values(got))
				assert.Equal(t, "a", got[0]["progressToken"])
				assert.Equal(t, "b", got[7]["progressToken"])
			})
		})
	}
}

// Nor may it fall once the user of an older client has answered: it is still the same
// request.
func TestProgressAroundAQuestion(t *testing.T) {
	needsQuestions(t)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newGuard(t, resilience.Config{}))
		s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if !answered(req) {
				report(ctx, t, req, 1, 2)
				return question(), nil
			}
			report(ctx, t, req, 1, 2, 3)
			return done, nil
		})
		c := connect(t, s, &user{})
		defer c.Close()
		heard := listen(c)
		_, err := c.CallTool(t.Context(), request("x", nil, map[string]any{"progressToken": 7}))
		require.NoError(t, err)
		assert.Equal(t, []float64{1, 2, 3}, values(heard()))
	})
}

// MCP wants it to stop with the result.
func TestProgressStopsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newGuard(t, resilience.Config{}))
		s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			report(ctx, t, req, 1)
			time.Sleep(time.Hour) // heeds nothing
			report(ctx, t, req, 2)
			return done, nil
		})
		c := connect(t, s, nil)
		defer c.Close()
		heard := listen(c)
		res, err := c.CallTool(t.Context(), request("x", nil, map[string]any{"progressToken": "p"}))
		require.NoError(t, err)
		assert.Equal(t, resilience.CodeTimeout, advised(t, res).Code)
		time.Sleep(2 * time.Hour)
		assert.Equal(t, []float64{1}, values(heard()))
	})
}

func TestProgressParams(t *testing.T) {
	for name, tc := range map[string]struct {
		progress, total float64
		message         string
		want            map[string]any // nil: an error
	}{
		"all":               {1, 2, "half", map[string]any{"progressToken": "p", "progress": 1.0, "total": 2.0, "message": "half"}},
		"no total":          {1, 0, "some", map[string]any{"progressToken": "p", "progress": 1.0, "message": "some"}},
		"no message":        {1, 2, "", map[string]any{"progressToken": "p", "progress": 1.0, "total": 2.0}},
		"not a number":      {math.NaN(), 2, "", nil},
		"infinite":          {math.Inf(1), 2, "", nil},
		"an infinite total": {1, math.Inf(1), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(newGuard(t, resilience.Config{}))
				s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					err := mcpgo.NotifyProgress(ctx, req, tc.progress, tc.total, tc.message)
					assert.Equal(t, tc.want == nil, err != nil)
					return done, nil
				})
				c := connect(t, s, nil)
				defer c.Close()
				heard := listen(c)
				_, err := c.CallTool(t.Context(), request("x", nil, map[string]any{"progressToken": "p"}))
				require.NoError(t, err)
				if tc.want == nil {
					assert.Empty(t, heard())
				} else {
					assert.Equal(t, []map[string]any{tc.want}, heard())
				}
			})
		})
	}
}

// What could not be sent is an error, and isn't taken for sent.
func TestProgressThatIsNotSent(t *testing.T) {
	s := newServer(newGuard(t, resilience.Config{}))
	client := newWire(s, nil)
	s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		assert.ErrorIs(t, mcpgo.NotifyProgress(ctx, req, 1, 0, ""), server.ErrNotificationNotInitialized)
		client.Initialize()
		sent := 0
		var err error
		for ; sent < 1000 && err == nil; sent++ { // nobody reads them
			err = mcpgo.NotifyProgress(ctx, req, float64(sent+1), 0, "")
		}
		assert.ErrorIs(t, err, server.ErrNotificationChannelBlocked)
		<-client.notifications
		assert.NoError(t, mcpgo.NotifyProgress(ctx, req, float64(sent), 0, ""))
		assert.Len(t, client.notifications, sent-1)
		return done, nil
	})
	_, code := handle(t, s.WithContext(t.Context(), client), s, "tools/call", 1, map[string]any{"name": "x", "_meta": map[string]any{"progressToken": 1}})
	assert.Zero(t, code)

	assert.NoError(t, mcpgo.NotifyProgress(t.Context(), request("x", nil, nil), 1, 0, ""), "nobody wants to know")
	assert.Error(t, mcpgo.NotifyProgress(t.Context(), request("x", nil, map[string]any{"progressToken": 1}), 1, 0, ""))
}

// Without a guard it is sent as it is.
func TestProgressWithoutAGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.NewMCPServer("test", "1")
		s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			report(ctx, t, req, 1, 2)
			return done, nil
		})
		c := connect(t, s, nil)
		defer c.Close()
		heard := listen(c)
		_, err := c.CallTool(t.Context(), request("x", nil, map[string]any{"progressToken": "p"}))
		require.NoError(t, err)
		assert.Equal(t, []float64{1, 2}, values(heard()))
	})
}
