//lint:file-ignore SA1019 servers still log
package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A crowd is a protected server with several clients, of which some don't read notifications.
type crowd struct {
	*fixture
	release func() // makes the deaf ones read

	mu    sync.Mutex
	deaf  map[mcp.Session]bool
	heard []string // by all clients
}

func newCrowd(t *testing.T, cfg resilience.Config, sending ...mcp.Middleware) *crowd {
	accept := &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	}
	reads := make(chan struct{})
	c := &crowd{
		fixture: newFixture(t, cfg, accept), deaf: make(map[mcp.Session]bool),
		release: sync.OnceFunc(func() { close(reads) }),
	}
	t.Cleanup(c.release)
	c.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			c.mu.Lock()
			deaf := c.deaf[req.GetSession()]
			c.mu.Unlock()
			if deaf {
				<-reads // whatever becomes of the context, as in the SDK
			}
			return next(ctx, method, req)
		}
	})
	c.server.AddSendingMiddleware(sending...)
	gosdk.Protect(c.server, c.guard)
	return c
}

func (c *crowd) hear(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, fmt.Sprintf(format, args...))
}

// takeHeard returns what the clients have heard since the last time.
func (c *crowd) takeHeard() (heard []string) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	heard, c.heard = c.heard, nil
	return heard
}

// join connects a client that has subscribed to a resource and wants log messages. It returns the server's session.
func (c *crowd) join(name string) *mcp.ServerSession {
	known := make(map[*mcp.ServerSession]bool)
	for s := range c.server.Sessions() {
		known[s] = true
	}
	c.options = mcp.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) {
			c.hear("%s: %s", name, jsonOf(c.T, req.Params.Data))
		},
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			c.hear("%s: %v", name, req.Params.Progress)
		},
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) {
			c.hear("%s: %v", name, req.Params.Meta["n"])
		},
	}
	c.connect(legacy)
	require.NoError(c, c.session.Subscribe(c.Context(), &mcp.SubscribeParams{URI: "notes://all"}))
	require.NoError(c, c.session.SetLoggingLevel(c.Context(), &mcp.SetLoggingLevelParams{Level: "info"}))
	for s := range c.server.Sessions() {
		if !known[s] {
			return s
		}
	}
	require.FailNow(c, "no session")
	panic("unreachable")
}

func (c *crowd) joinDeaf(name string) *mcp.ServerSession {
	s := c.join(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf[s] = true
	return s
}

func (c *crowd) others(than *mcp.ServerSession) (others []*mcp.ServerSession) {
	for s := range c.server.Sessions() {
		if s != than {
			others = append(others, s)
		}
	}
	return others
}

// tellings is how a tool tells something to clients of which none, or not only one, is its own.
var tellings = map[string]func(ctx context.Context, c *crowd, own *mcp.ServerSession, n int) error{
	"a resource": func(ctx context.Context, c *crowd, _ *mcp.ServerSession, n int) error {
		return c.server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{
			URI: "notes://all", Meta: mcp.Meta{"n": n},
		})
	},
	"progress": func(ctx context.Context, c *crowd, own *mcp.ServerSession, n int) (err error) {
		for _, s := range c.others(own) {
			note := &mcp.ProgressNotificationParams{ProgressToken: "all", Progress: float64(n)}
			err = errors.Join(err, s.NotifyProgress(ctx, note))
		}
		return err
	},
	"slog": func(_ context.Context, c *crowd, own *mcp.ServerSession, n int) error {
		for _, s := range c.others(own) {
			slog.New(mcp.NewLoggingHandler(s, nil)).Error("told", "n", n)
		}
		return nil
	},
	"log messages": func(ctx context.Context, c *crowd, _ *mcp.ServerSession, n int) (err error) {
		for s := range c.server.Sessions() {
			err = errors.Join(err, s.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: n}))
		}
		return err
	},
}

// A client that doesn't read keeps the breaker of a dead backend closed for no other, though the tool tells all of them
// something and waits for that client each time.
func TestDeafClientExcusesNoDeadBackend(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second} {
		t.Run(fmt.Sprint(timeout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, resilience.Config{Tools: map[string]resilience.Tool{"save": {Timeout: timeout}}})
				c.raw("save", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for s := range c.server.Sessions() {
						_ = s.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "saved"})
					}
					<-ctx.Done()
					return nil, ctx.Err()
				})
				c.joinDeaf("deaf")
				c.join("healthy")
				for range 5 {
					_, err := c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "save"})
					require.NoError(t, err)
					time.Sleep(3 * time.Second)
				}
				assert.Equal(t, resilience.StateOpen, c.guard.Breaker("save").State())
				c.release()
			})
		})
	}
}
