package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type (
	useFunc  = func(context.Context, *mcp.ClientSession) (*mcp.CallToolResult, error)
	callFunc = func(context.Context) (*mcp.CallToolResult, error)
)

// What another session says, within a call of one, says nothing of that one, in whatever words it comes.
func TestErrorOfAnotherSessionEndsNone(t *testing.T) {
	for name, wrap := range map[string]func(context.Context, callFunc) (*mcp.CallToolResult, error){
		"as it is": func(ctx context.Context, write callFunc) (*mcp.CallToolResult, error) {
			return write(ctx)
		},
		"wrapped": func(ctx context.Context, write callFunc) (*mcp.CallToolResult, error) {
			res, err := write(ctx)
			return res, fmt.Errorf("writing: %w", err)
		},
		"joined": func(ctx context.Context, write callFunc) (*mcp.CallToolResult, error) {
			res, err := write(ctx)
			_, again := write(ctx)
			return res, errors.Join(errBoom, err, again)
		},
		"behind a guard": func(ctx context.Context, write callFunc) (*mcp.CallToolResult, error) {
			return resilience.Do(ctx, resilience.Must(resilience.New(resilience.Config{})), "write", write)
		},
	} {
		for _, how := range []string{"lost", "down"} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					here, there := newPeer(), newGatedPeer()
					a, b := newSession(t, here.dial, sessionConfig{}), newSession(t, there.dial, sessionConfig{})
					defer a.Close()
					defer b.Close()
					before, lost := up(t, a), up(t, b)
					if how == "down" {
						there.cut()
						gone(t, b, lost)
					}

					_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (*mcp.CallToolResult, error) {
						return wrap(ctx, func(ctx context.Context) (*mcp.CallToolResult, error) {
							if how == "lost" {
								there.cut()
							}
							return b.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
						})
					})
					assert.ErrorIs(t, err, resilience.CodeConnectionLost)
					after, err := a.Get(t.Context())
					require.NoError(t, err)
					assert.Same(t, before, after)
					assert.Equal(t, 1, here.dials())
				})
			})
		}
	}
}

// A use within one of the same session speaks for it, and so does an error of its own after one of another session.
func TestErrorOfTheSameSessionEndsIt(t *testing.T) {
	lose := func(p *peer) useFunc {
		return func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
			p.cut()
			return cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
		}
	}
	for name, use := range map[string]func(*peer, *gosdk.Session, *gosdk.Session) useFunc{
		"within": func(p *peer, a, _ *gosdk.Session) useFunc {
			return func(ctx context.Context, _ *mcp.ClientSession) (*mcp.CallToolResult, error) {
				return gosdk.Use(ctx, a, lose(p))
			}
		},
		"within, without its words": func(p *peer, a, _ *gosdk.Session) useFunc {
			return func(ctx context.Context, _ *mcp.ClientSession) (*mcp.CallToolResult, error) {
				_, err := gosdk.Use(ctx, a, lose(p))
				return nil, errors.Unwrap(err)
			}
		},
		"after another": func(p *peer, _, b *gosdk.Session) useFunc {
			return func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
				for range 200 {
					_, err := b.CallTool(ctx, &mcp.CallToolParams{Name: "closing"})
					if err == nil {
						return nil, errBoom
					}
				}
				return lose(p)(ctx, cs)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newGatedPeer()
				a, b := newSession(t, p.dial, sessionConfig{}), newSession(t, newPeer().dial, sessionConfig{})
				defer a.Close()
				defer b.Close()
				first := up(t, a)
				up(t, b)
				_, err := gosdk.Use(t.Context(), a, use(p, a, b))
				requireLost(t, err)
				gone(t, a, first)
			})
		})
	}
}

// An error of the session's own counts beside one of another, in whichever order they come.
func TestErrorOfBothSessionsEndsOne(t *testing.T) {
	for name, join := range map[string]func(own, other error) error{
		"joined":         func(own, other error) error { return errors.Join(own, other) },
		"joined, later":  func(own, other error) error { return errors.Join(nil, fmt.Errorf("mirror: %w", other), own) },
		"wrapped":        func(own, other error) error { return fmt.Errorf("primary: %w; mirror: %w", own, other) },
		"wrapped, later": func(own, other error) error { return fmt.Errorf("both: %w", fmt.Errorf("%w and %w", other, own)) },
	} {
		for _, tool := range []string{"closing", "hang"} { // which is another's mistake, or lost with it
			t.Run(name+", "+tool, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					here, there := newPeer(), newPeer()
					a, b := newSession(t, here.dial, sessionConfig{}), newSession(t, there.dial, sessionConfig{})
					defer a.Close()
					defer b.Close()
					first := up(t, a)
					up(t, b)
					go func() {
						<-there.started
						there.cut()
					}()
					_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
						_, other := b.CallTool(ctx, &mcp.CallToolParams{Name: tool})
						return 0, join(fmt.Errorf(`calling "tools/call": %w`, mcp.ErrSessionMissing), other)
					})
					requireLost(t, err)
					assert.ErrorIs(t, err, mcp.ErrSessionMissing)
					assert.NotSame(t, first, up(t, a))
					there.started <- struct{}{}
				})
			})
		}
	}
}

// A handler of questions that asks another server fails neither that call nor its session.
func TestQuestionThatAnotherSessionCannotAnswer(t *testing.T) {
	for _, how := range []string{"down", "lost", "refused"} {
		t.Run(how, func(t *testing.T) {
			there := newGatedPeer()
			other := newSession(t, there.dial, sessionConfig{})
			defer other.Close()
			if lost := up(t, other); how == "down" {
				there.cut()
				gone(t, other, lost)
			}
			asked := 0
			client := newClient(&mcp.ClientOptions{ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked++
				if how == "lost" {
					there.cut()
				}
				_, err := other.CallTool(ctx, &mcp.CallToolParams{Name: "closing"})
				return nil, err
			}})
			server := newServer(nil)
			addRaw(server, &mcp.Tool{Name: "asks"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": askedOf["elicitation"].params}}, nil
			})

			p := newHTTPPeerOf(t, server, latest, client)
			first := up(t, p.session)
			g := newGuard(t, resilience.Config{Retry: fast, Effect: resilience.ReadOnly})
			r := resilience.Run(t.Context(), g, "asks", func(ctx context.Context) (*mcp.CallToolResult, error) {
				return p.session.CallTool(ctx, &mcp.CallToolParams{Name: "asks"})
			})
			require.Error(t, r.Err)
			assert.Equal(t, 1, asked)
			assert.Equal(t, 1, r.Attempts)
			assert.Zero(t, g.Breaker("asks").Failures())
			assert.Same(t, first, up(t, p.session))
		})
	}
}

// A server's own errors may have the codes of the SDK's for a closed connection. They end no session, also where
// something before the server refuses pings.
func TestCodeOfAClosedConnectionEndsNone(t *testing.T) {
	for _, code := range []int{-32003, -32004} {
		for _, refusal := range []fakeAnswer{{status: 404}, {status: 403}, {status: 200, code: code}} {
			inBubble(t, fmt.Sprint(code, ", pings ", refusal.status), func(t *testing.T) {
				f := &scripted{answer: func(_, method, _ string) fakeAnswer {
					if method == "ping" {
						return refusal
					}
					return fakeAnswer{status: 200, code: code}
				}}
				s, call := f.session(t)
				defer s.Close()
				first := up(t, s)
				for range 5 {
					assert.Error(t, call("read"))
				}
				assert.Same(t, first, up(t, s))
			})
		}
	}
}

// Others say "calling" of a tool, too: these are the SDK's words only if it names a method of MCP.
func TestWordsLikeThoseOfTheSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		s := newSession(t, p.dial, sessionConfig{})
		defer s.Close()
		before := up(t, s)
		_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
			_, err := os.ReadFile("no such file")
			return 0, fmt.Errorf("calling %q: %w", "read", err)
		})
		assert.ErrorIs(t, err, os.ErrNotExist)
		assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
		after, err := s.Get(t.Context())
		require.NoError(t, err)
		assert.Same(t, before, after)

		begin := time.Now()
		_, err = gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
			err := fmt.Errorf("calling %q: %w", "tools/call", &os.PathError{Op: "read", Path: "|0", Err: os.ErrClosed})
			return 0, fmt.Errorf("calling %q: %w", "read", err)
		})
		requireLost(t, err)
		assert.Zero(t, time.Since(begin))
	})
}
