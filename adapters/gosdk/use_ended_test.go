package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
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

// lossesAtTheEnd are how servers refuse the calls of a session that they have forgotten.
var lossesAtTheEnd = map[string]fakeAnswer{
	"400": unknownSession, "401": {status: 401, code: -32001}, "404": {status: 404, code: -32600}, "a page": {status: 404},
}

// What f has returned when its context has ended, as where it retries by itself until then, is returned as it is and at
// once, and gives up a session that the server has forgotten.
func TestUseWhoseContextHasEndedGivesALostSessionUp(t *testing.T) {
	for name, refused := range lossesAtTheEnd {
		inBubble(t, name, func(t *testing.T) {
			var forgotten atomic.Bool
			f := &scripted{answer: func(session, _, _ string) fakeAnswer {
				if session == "1" && forgotten.Load() {
					return refused
				}
				return fakeAnswer{after: time.Millisecond}
			}}
			s, call := f.session(t)
			defer s.Close()
			first := up(t, s)
			forgotten.Store(true)

			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var said error
			var returned time.Time
			_, err := gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (res *mcp.CallToolResult, err error) {
				for ctx.Err() == nil {
					if res, err = cs.CallTool(context.WithoutCancel(ctx), &mcp.CallToolParams{Name: "read"}); err == nil {
						return res, nil
					}
					said = err
					time.Sleep(time.Second)
				}
				returned = time.Now()
				return nil, err
			})
			assert.ErrorIs(t, err, said)
			assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
			assert.Zero(t, time.Since(returned))

			time.Sleep(time.Second)
			assert.NotSame(t, first, up(t, s))
			assert.NoError(t, call("read"))
		})
	}
}

// errClosing is what the SDK says of a call by a session that it is closing.
var errClosing = fmt.Errorf("%w: calling %q: %w", mcp.ErrConnectionClosed, "tools/call", errors.New("client is closing"))

// Nobody waits any more for what a ping would tell.
func TestUseWhoseContextHasEndedWaitsForNoPing(t *testing.T) {
	for name, said := range map[string]error{
		"no result": fmt.Errorf("calling %q: %w", "tools/call", io.EOF),
		"closing":   errClosing,
		"refused": fmt.Errorf("calling %q: %w", "tools/call", fmt.Errorf("%w: %w: Unauthorized",
			&jsonrpc.Error{Code: -32001, Message: "no"}, &jsonrpc.Error{Code: -32005, Message: "rejected by transport"})),
		"unknown": fmt.Errorf("calling %q: %w", "tools/call", errBoom),
	} {
		inBubble(t, name, func(t *testing.T) {
			f := &scripted{mute: true, answer: func(string, string, string) fakeAnswer { return fakeAnswer{} }}
			s, _ := f.session(t, slowToPing(time.Minute))
			defer s.Close()
			first := up(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			begin := time.Now()
			_, err := gosdk.Use(ctx, s, func(context.Context, *mcp.ClientSession) (int, error) {
				cancel()
				return 0, said
			})
			assert.ErrorIs(t, err, said)
			assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
			assert.Zero(t, time.Since(begin))
			assert.Same(t, first, up(t, s))
			time.Sleep(2 * time.Minute)
		})
	}
}

// ends are how contexts end.
var ends = map[string]error{"canceled": context.Canceled, "timeout": context.DeadlineExceeded}

// endingBy returns a context that ends so after a second.
func endingBy(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	if errors.Is(cause, context.DeadlineExceeded) {
		return context.WithTimeout(ctx, time.Second)
	}
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(time.Second, cancel)
	return ctx, cancel
}

// dialOnce connects to a server that can't be reached any more after that: each dial lasts until its context ends.
func dialOnce() func(context.Context) (*mcp.ClientSession, error) {
	f := &scripted{answer: func(string, string, string) fakeAnswer { return fakeAnswer{after: time.Millisecond} }}
	var blocked atomic.Bool
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		if !blocked.Load() {
			return f.RoundTrip(r)
		}
		<-r.Context().Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: r.Context().Err()}
	})
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		defer blocked.Store(true)
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: "http://fake/", HTTPClient: &http.Client{Transport: gosdk.Transport(base)}, DisableStandaloneSSE: true,
		}, speaking(legacy))
	}
}

// A dial that the end of the context has ended is no sign that the server can't be reached.
func TestDialThatEndsWithItsContextEndsNoSession(t *testing.T) {
	for name, cause := range ends {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, dialOnce(), sessionConfig{})
			defer s.Close()
			first := up(t, s)
			ctx, cancel := endingBy(t.Context(), cause)
			defer cancel()
			_, err := gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
				return cs.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
			})
			require.ErrorIs(t, err, cause)
			synctest.Wait()
			assert.Same(t, first, up(t, s))
		})
	}
}

// What another session says in a use whose own context has ended says nothing of the session of the use around it.
func TestUseWhoseContextHasEndedWithinAnother(t *testing.T) {
	others := maps.Clone(lossesAtTheEnd)
	others["no result"] = fakeAnswer{status: http.StatusOK}
	others["closing"] = fakeAnswer{}
	pings := map[string]fakeAnswer{"answered": {}, "refused": {status: 400, code: -32000}, "refused by a page": {status: 404}}
	for name, answer := range others {
		for by, cause := range ends {
			for pinged, ping := range pings {
				inBubble(t, fmt.Sprint(name, ", ", by, ", pings ", pinged), func(t *testing.T) {
					here := &scripted{answer: func(string, string, string) fakeAnswer { return ping }}
					there := &scripted{answer: func(string, string, string) fakeAnswer { return answer }}
					a, _ := here.session(t)
					b, _ := there.session(t)
					defer a.Close()
					defer b.Close()
					first := up(t, a)
					up(t, b)
					var said error
					_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
						within, cancel := endingBy(ctx, cause)
						defer cancel()
						return gosdk.Use(within, b, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
							if _, said = cs.CallTool(ctx, &mcp.CallToolParams{Name: "write"}); name == "closing" {
								said = errClosing
							}
							<-ctx.Done()
							return 0, said
						})
					})
					require.Error(t, said)
					assert.ErrorIs(t, err, said)
					synctest.Wait()
					assert.Same(t, first, up(t, a))
				})
			}
		}
	}
}

// What says nothing of the server isn't counted either, if f says it when the context of its use has ended.
func TestMistakeInAUseWhoseContextHasEnded(t *testing.T) {
	for name, answer := range map[string]fakeAnswer{
		"a mistake": {status: 200, code: -32602}, "a mistake, by status 400": {status: 400, code: -32602},
		"no result": {status: 200}, "a token": {status: 401},
	} {
		for _, within := range []bool{false, true} {
			inBubble(t, fmt.Sprint(name, ", within another use ", within), func(t *testing.T) {
				here := &scripted{answer: func(string, string, string) fakeAnswer { return fakeAnswer{} }}
				there := &scripted{answer: func(_, method, _ string) fakeAnswer {
					if method == "ping" {
						return fakeAnswer{}
					}
					return answer
				}}
				a, _ := here.session(t)
				b := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) { return there.connect(ctx, true) }, sessionConfig{})
				defer a.Close()
				defer b.Close()
				first := up(t, a)
				write := func(ctx context.Context, _ *mcp.ClientSession) (*mcp.CallToolResult, error) {
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					return gosdk.Use(ctx, b, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
						res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "write"})
						<-ctx.Done()
						return res, err
					})
				}

				g := newGuard(t, resilience.Config{})
				for range 5 {
					up(t, b)
					_, err := resilience.Do(t.Context(), g, "write", func(ctx context.Context) (*mcp.CallToolResult, error) {
						if within {
							return gosdk.Use(ctx, a, write)
						}
						return write(ctx, nil)
					})
					require.Error(t, err)
				}
				assert.Zero(t, g.Breaker("write").Failures())
				assert.Same(t, first, up(t, a))
			})
		}
	}
}

// Nor is a caller who has left told that the Session was closed.
func TestUseWhoseContextHasEndedOfAClosedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, newPeer().dial, sessionConfig{})
		up(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := gosdk.Use(ctx, s, func(context.Context, *mcp.ClientSession) (int, error) {
			cancel()
			_ = s.Close()
			return 0, context.Canceled
		})
		assert.Equal(t, context.Canceled, err)
	})
}
