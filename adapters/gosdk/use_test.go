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
			return 0, fmt.Errorf("calling %q: calling %q: %w", "read", "tools/call", &os.PathError{Op: "read", Path: "|0", Err: os.ErrClosed})
		})
		requireLost(t, err)
		assert.Zero(t, time.Since(begin))
	})
}
