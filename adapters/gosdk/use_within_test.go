package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A use of one session may hold one of another, by whose f the first is used, too: what its server refuses it by counts for
// it, wherever it comes.
func TestSessionThatIsUsedWithinAUseOfAnother(t *testing.T) {
	for name, refused := range map[string]fakeAnswer{
		"404": {status: 404, code: -32000}, "400": {status: 400, code: -32000}, "401": {status: 401, code: -32001},
		"as servers in Python say it": {status: 404, code: -32600}, // which is marked
	} {
		inBubble(t, name, func(t *testing.T) {
			var forgotten atomic.Bool
			from := &scripted{answer: func(session, _, _ string) fakeAnswer {
				if session == "1" && forgotten.Load() {
					return refused
				}
				return fakeAnswer{after: time.Millisecond}
			}}
			to := &scripted{answer: func(string, string, string) fakeAnswer { return fakeAnswer{after: time.Millisecond} }}
			a, _ := from.session(t)
			b, _ := to.session(t)
			defer a.Close()
			defer b.Close()
			first, healthy := up(t, a), up(t, b)
			forgotten.Store(true)
			_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, read *mcp.ClientSession) (int, error) {
				return gosdk.Use(ctx, b, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
					_, err := read.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
					return 0, err
				})
			})
			requireLost(t, err)
			assert.NotSame(t, first, up(t, a))
			assert.Same(t, healthy, up(t, b))
		})
	}
}

// What an author says of another session's error, within a use, is his word; what this package makes of one isn't.
func TestWordsOfAuthorsWithinAUse(t *testing.T) {
	for name, says := range map[string]func(error) error{
		"permanent": resilience.MarkPermanent,
		"neutral":   resilience.MarkNeutral,
		"an error": func(err error) error {
			return &resilience.Error{Code: "PARTIAL_WRITE", Message: "Some are written.", Err: err}
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			here := &scripted{answer: func(string, string, string) fakeAnswer { return fakeAnswer{after: time.Millisecond} }}
			there := &scripted{answer: func(string, string, string) fakeAnswer { return fakeAnswer{status: 503, code: -32603} }}
			a, _ := here.session(t)
			b, _ := there.session(t)
			defer a.Close()
			defer b.Close()
			up(t, a)
			up(t, b)
			var said error
			_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
				return gosdk.Use(ctx, b, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
					_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "write"})
					said = says(err)
					return 0, said
				})
			})
			assert.Same(t, said, err)
		})

		inBubble(t, name+", of a loss, beside a loss", func(t *testing.T) {
			there := newPeer()
			a, b := newSession(t, newPeer().dial, sessionConfig{}), newSession(t, there.dial, sessionConfig{})
			defer a.Close()
			defer b.Close()
			first := up(t, a)
			up(t, b)
			var said error
			_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
				_, other := gosdk.Use(ctx, b, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
					there.cut()
					_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
					return 0, says(err)
				})
				said = errors.Join(other, fmt.Errorf(`calling "tools/call": %w`, mcp.ErrSessionMissing))
				return 0, said
			})
			assert.Same(t, said, err)
			assert.NotSame(t, first, up(t, a))
		})
	}

	for name, answer := range map[string]fakeAnswer{
		"no result": {after: time.Millisecond, status: http.StatusOK}, "a mistake": {status: http.StatusOK, code: -32602},
	} {
		for _, calls := range []int{1, 2} {
			inBubble(t, fmt.Sprint(name, " of ", calls), func(t *testing.T) {
				there := &scripted{answer: func(string, string, string) fakeAnswer { return answer }}
				a := newSession(t, newPeer().dial, sessionConfig{})
				b, _ := there.session(t)
				defer a.Close()
				defer b.Close()
				first := up(t, a)
				up(t, b)
				_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
					_, other := gosdk.Use(ctx, b, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
						all := make([]error, calls)
						for i := range all {
							_, all[i] = cs.CallTool(ctx, &mcp.CallToolParams{Name: "write"})
						}
						return 0, errors.Join(all...)
					})
					return 0, errors.Join(other, fmt.Errorf(`calling "tools/call": %w`, mcp.ErrSessionMissing))
				})
				requireLost(t, err)
				assert.NotSame(t, first, up(t, a))
			})
		}
	}
}

// A loop over another session whose server can't be dialed ends none but that.
func TestManyErrorsOfAnotherSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		there := newPeer()
		a := newSession(t, newPeer().dial, sessionConfig{})
		b := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
			if there.dials() > 0 {
				return nil, fmt.Errorf(`calling "initialize": %w`, refused)
			}
			return there.dial(ctx)
		}, sessionConfig{Backoff: steady(time.Second)})
		defer a.Close()
		defer b.Close()
		first, lost := up(t, a), up(t, b)
		there.cut()
		gone(t, b, lost)
		_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
			var all []error
			for range 100 {
				time.Sleep(time.Second)
				_, err := b.CallTool(ctx, &mcp.CallToolParams{Name: "write"})
				all = append(all, err)
			}
			return 0, errors.Join(all...)
		})
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		assert.Same(t, first, up(t, a))
	})
}

// What f does by HTTP says nothing of a session over a pipe.
func TestPipeThatDiesAfterACallByHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		web := &scripted{answer: func(string, string, string) fakeAnswer { return fakeAnswer{after: time.Millisecond} }}
		a := newSession(t, p.dial, sessionConfig{})
		b, _ := web.session(t)
		defer a.Close()
		defer b.Close()
		up(t, a)
		up(t, b)
		go func() {
			<-p.started
			p.cut()
		}()
		_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
			_, err := b.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
			require.NoError(t, err)
			_, err = cs.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
			return 0, err
		})
		requireLost(t, err)
	})
}

// A failure of another session's that says nothing of its server adds nothing to what one's own says.
func TestHarmlessFailuresOfTwoSessions(t *testing.T) {
	const fatal = 503 // the only one here that counts, and is retried
	answers := map[string]fakeAnswer{
		"a failure": {status: 200, code: -32603}, "no result": {status: 200}, "a token": {status: 401, code: -32001},
		"a page": {status: 403}, "trouble": {status: fatal, code: -32603},
	}
	for nameOfOwn, own := range answers {
		for nameOfOther, other := range answers {
			inBubble(t, nameOfOwn+", "+nameOfOther, func(t *testing.T) {
				var sessions [2]*gosdk.Session
				for i, answer := range []fakeAnswer{own, other} {
					f := &scripted{answer: func(_, method, _ string) fakeAnswer {
						if method == "ping" {
							return fakeAnswer{after: time.Millisecond}
						}
						return answer
					}}
					sessions[i], _ = f.session(t)
					defer sessions[i].Close()
				}

				g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: resilience.Retry{MaxRetries: 1}})
				r := resilience.Run(t.Context(), g, "copy", func(ctx context.Context) (int, error) {
					up(t, sessions[0])
					up(t, sessions[1])
					return gosdk.Use(ctx, sessions[0], func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
						_, own := cs.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
						_, other := sessions[1].CallTool(ctx, &mcp.CallToolParams{Name: "read"})
						return 0, errors.Join(other, own)
					})
				}, behindAdapter)
				counts := own.status == fatal || other.status == fatal
				assert.Equal(t, counts, g.Breaker("copy").Failures() > 0)
				assert.Equal(t, counts, r.Attempts > 1)
			})
		}
	}
}
