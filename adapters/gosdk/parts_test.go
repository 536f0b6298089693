package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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

// wordings are what callers of the SDK make of its errors.
var wordings = map[string]func(one, two error) error{
	"as it is":         func(one, _ error) error { return one },
	"words before":     func(one, _ error) error { return fmt.Errorf("order 7: %w", one) },
	"words after":      func(one, _ error) error { return fmt.Errorf("%w (order 7)", one) },
	"words like its":   func(one, _ error) error { return fmt.Errorf("calling %q: %w", "order", one) },
	"a type of theirs": func(one, _ error) error { return wrapped{one} },
	"joined":           func(one, two error) error { return errors.Join(one, two) },
	"two in one":       func(one, two error) error { return fmt.Errorf("twice: %w; %w", one, two) },
	"an aggregate":     func(one, two error) error { return aggregate{one, two} },
	"older tries":      func(one, two error) error { return tries{aggregate{two, one, two}} },
}

// An aggregate has errors as those of Kubernetes and multierr have them, and no method Unwrap.
type aggregate []error

func (a aggregate) Error() string        { return fmt.Sprintf("%d errors: %v", len(a), errors.Join(a...)) }
func (a aggregate) Errors() []error      { return a }
func (a aggregate) Is(target error) bool { return errors.Is(errors.Join(a...), target) }

// A tries has the errors of all attempts, as those of a library that retries, and unwraps to the last.
type tries struct{ aggregate }

func (t tries) WrappedErrors() []error { return t.aggregate }
func (t tries) Unwrap() error          { return t.aggregate[len(t.aggregate)-1] }

// A wrapped error can't be compared if what it wraps can't.
type wrapped struct{ error }

func (w wrapped) Unwrap() error { return w.error }

// idIn returns the ID of a request in JSON, if it has one.
func idIn(body string) (id string, asks bool) {
	_, id, asks = strings.Cut(body, `"id":`)
	id, _, _ = strings.Cut(id, ",")
	return strings.TrimSuffix(id, "}"), asks
}

// refusingCalls lets a server refuse each call by a status and, if there is one, an error of MCP.
func refusingCalls(status int, answer string) *func(http.ResponseWriter, *http.Request) bool {
	f := func(w http.ResponseWriter, r *http.Request) bool {
		body := string(bodyOf(r))
		if !strings.Contains(body, `"tools/call"`) {
			return false
		}
		id, _ := idIn(body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.Replace(answer, "ID", id, 1))
		return true
	}
	return &f
}

// putting is a client's middleware that puts the SDK's errors in other words.
func putting(wording func(one, two error) error) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if err != nil {
				err = wording(err, nil)
			}
			return res, err
		}
	}
}

// A client's bad token isn't counted, in whatever words that is told.
func TestRefusalInOtherWordsCountsAsLittle(t *testing.T) {
	for name, wording := range wordings {
		for _, answer := range []string{"", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"bad token"}}`} {
			for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden} {
				t.Run(fmt.Sprint(name, ", ", status, ", ", answer != ""), func(t *testing.T) {
					p, g := newHTTPPeer(t), newGuard(t, resilience.Config{})
					close(p.back)
					up(t, p.session)
					p.intercept.Store(refusingCalls(status, answer))
					_, err := resilience.Do(t.Context(), g, "order", func(ctx context.Context) (int, error) {
						return gosdk.Use(ctx, p.session, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
							_, one := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
							_, two := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
							return 0, wording(one, two)
						})
					})
					assert.Error(t, err)
					assert.NotErrorIs(t, err, resilience.CodeConnectionLost)
					assert.Zero(t, g.Breaker("order").Failures())

					session, err := newClient(nil, gosdk.ClientMiddleware(g), putting(wording)).Connect(t.Context(), &mcp.StreamableClientTransport{
						Endpoint: p.URL, DisableStandaloneSSE: true,
					}, speaking(legacy))
					require.NoError(t, err)
					defer session.Close()
					_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
					assert.Error(t, err)
					assert.Zero(t, g.Breaker("echo").Failures())
				})
			}
		}
	}
}

// A session that a server refuses is given up, in whatever words that is told, also beside other failures.
func TestRefusedSessionIsGivenUpInOtherWords(t *testing.T) {
	for name, wording := range wordings {
		for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound} {
			for _, by := range []string{"who uses it", "who joins it", "the client"} {
				t.Run(fmt.Sprint(name, ", ", status, ", by ", by), func(t *testing.T) {
					var sending []mcp.Middleware
					if by == "the client" {
						sending = append(sending, putting(wording))
					}
					p := newHTTPPeer(t, sending...)
					close(p.back)
					first := up(t, p.session)
					refused := func(w http.ResponseWriter, r *http.Request) bool {
						id, asks := idIn(string(bodyOf(r)))
						if r.Header.Get("Mcp-Session-Id") != first.ID() || !asks {
							return false
						}
						w.WriteHeader(status)
						_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no such session"}}`, id)
						return true
					}
					p.intercept.Store(&refused)
					_, err := gosdk.Use(t.Context(), p.session, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
						_, one := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
						_, two := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
						switch by {
						case "the client":
							return 0, one
						case "who joins it":
							return 0, errors.Join(errBoom, wording(one, two))
						}
						return 0, wording(one, two)
					})
					assert.Error(t, err)
					assert.NotSame(t, first, up(t, p.session))
				})
			}
		}
	}
}

// What an author says of the errors of two sessions stands.
func TestAuthorOfErrorsOfTwoSessionsStands(t *testing.T) {
	for name, says := range map[string]func(error) error{
		"permanent": resilience.MarkPermanent,
		"neutral":   resilience.MarkNeutral,
		"an error": func(err error) error {
			return &resilience.Error{Code: "PARTIAL_WRITE", Message: "The primary may have the order.", Err: err}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := newPeer(), newPeer()
				a, b := newSession(t, here.dial, sessionConfig{}), newSession(t, there.dial, sessionConfig{})
				defer a.Close()
				defer b.Close()
				first := up(t, a)
				up(t, b)
				var said error
				_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
					here.cut()
					_, own := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
					_, other := b.CallTool(ctx, &mcp.CallToolParams{Name: "closing"})
					said = says(errors.Join(own, other))
					return 0, said
				})
				assert.Same(t, said, err)
				assert.NotSame(t, first, up(t, a))
			})
		})
	}
}

// An error of another session is none of this one's, whatever type wraps it.
func TestErrorOfAnotherSessionThatCannotBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := newPeer(), newPeer()
		there.sending = []mcp.Middleware{gosdk.ClientMiddleware(newGuard(t, resilience.Config{}))}
		a, b := newSession(t, here.dial, sessionConfig{}), newSession(t, there.dial, sessionConfig{})
		defer a.Close()
		defer b.Close()
		first := up(t, a)
		up(t, b)
		_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
			return gosdk.Use(ctx, b, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
				there.cut()
				_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
				return 0, wrapped{err}
			})
		})
		requireLost(t, err)
		assert.Same(t, first, up(t, a))
	})
}

// A question that another session's client hasn't answered hides no loss.
func TestQuestionOfAnotherSessionHidesNoLoss(t *testing.T) {
	for _, first := range []string{"own", "other"} {
		t.Run(first, func(t *testing.T) {
			server := newServer(nil)
			addRaw(server, &mcp.Tool{Name: "asks"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": askedOf["elicitation"].params}}, nil
			})
			refuses := func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) { return nil, errBoom }
			other := newHTTPPeerOf(t, server, latest, newClient(&mcp.ClientOptions{ElicitationHandler: refuses}))
			p := newPeer()
			a := newSession(t, p.dial, sessionConfig{})
			defer a.Close()
			lost := up(t, a)
			up(t, other.session)
			_, err := gosdk.Use(t.Context(), a, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
				_, asked := other.session.CallTool(ctx, &mcp.CallToolParams{Name: "asks"})
				assert.ErrorIs(t, asked, errBoom)
				own := fmt.Errorf(`calling "tools/call": %w`, mcp.ErrSessionMissing)
				if first == "own" {
					return 0, errors.Join(own, asked)
				}
				return 0, errors.Join(asked, own)
			})
			requireLost(t, err)
			assert.NotSame(t, lost, up(t, a))
		})
	}
}

// What may have had an effect, beside a call that has reached no server, stands in the way of a retry; and what its
// author says of it stands.
func TestWhatIsBesideARefusedDialCounts(t *testing.T) {
	rollback := errors.New("rollback failed")
	for name, tc := range map[string]struct {
		beside error
		runs   int
	}{
		"nothing":         {nil, 3},
		"a failure":       {rollback, 1},
		"of the backend":  {resilience.MarkBackend(rollback), 1},
		"of an author":    {resilience.MarkPermanent(rollback), 1},
		"an own error":    {&resilience.Error{Code: "PARTIAL_WRITE", Message: "The primary has the order.", Err: rollback}, 1},
		"another session": {nil, 1},
	} {
		for _, first := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", ", first), func(t *testing.T) {
				leavesNothing(t)
				var refuses atomic.Bool
				h, there := serveHTTP(t, newPeer().server), newPeer()
				client := &http.Client{Transport: &http.Transport{
					DisableKeepAlives: true,
					DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
						if refuses.Load() {
							return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
						}
						return new(net.Dialer).DialContext(ctx, network, addr)
					},
				}}
				a := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
						Endpoint: h.URL, HTTPClient: client, DisableStandaloneSSE: true,
					}, speaking(legacy))
				}, sessionConfig{Backoff: steady(time.Millisecond)})
				b := newSession(t, there.dial, sessionConfig{Backoff: steady(time.Millisecond)})
				defer a.Close()
				defer b.Close()

				g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Retry: resilience.Retry{MaxRetries: 2}})
				runs := 0
				_, err := resilience.Do(t.Context(), g, "transfer", func(ctx context.Context) (int, error) {
					up(t, a)
					up(t, b)
					return gosdk.Use(ctx, a, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
						runs++
						refuses.Store(true)
						_, own := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
						refuses.Store(false)
						beside := tc.beside
						if name == "another session" {
							_, beside = gosdk.Use(ctx, b, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
								there.cut() // not before, as b may notice it
								_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
								return 0, err
							})
						}
						if first {
							return 0, errors.Join(own, beside)
						}
						return 0, errors.Join(beside, own)
					})
				})
				assert.Equal(t, tc.runs, runs)
				if tc.beside != nil {
					assert.ErrorIs(t, err, rollback)
				}
			})
		}
	}
}

// However many refusals an error joins, one ping tells of all of them, and an answer without a result is asked about once.
func TestManyPartsTakeNoLongerThanOne(t *testing.T) {
	for name, answer := range map[string]fakeAnswer{
		"refused":   {after: time.Millisecond, status: http.StatusBadRequest, code: -32602},
		"no result": {after: time.Millisecond, status: http.StatusOK},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := &scripted{answer: func(_, method, _ string) fakeAnswer {
				if method == "ping" {
					return fakeAnswer{after: time.Hour}
				}
				return answer
			}}
			s, _ := f.session(t)
			defer s.Close()
			up(t, s)
			begin := time.Now()
			_, err := gosdk.Use(t.Context(), s, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
				var all []error
				for range 50 {
					_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "bad"})
					all = append(all, err)
				}
				return 0, errors.Join(all...)
			})
			assert.Error(t, err)
			assert.LessOrEqual(t, time.Since(begin), 2*time.Second)
		})
	}
}

// One refusal by which the server has forgotten the session is enough, whatever else is refused.
func TestRefusalOfASessionBesideAMistake(t *testing.T) {
	for _, tools := range [][]string{{"read", "bad"}, {"bad", "read"}} {
		inBubble(t, fmt.Sprint(tools), func(t *testing.T) {
			var forgotten atomic.Bool
			f := &scripted{answer: func(session, _, tool string) fakeAnswer {
				switch {
				case tool == "bad":
					return fakeAnswer{after: time.Millisecond, status: http.StatusBadRequest, code: -32602}
				case session == "1" && forgotten.Load():
					return unknownSession
				}
				return fakeAnswer{after: time.Millisecond}
			}}
			s, _ := f.session(t)
			defer s.Close()
			first := up(t, s)
			forgotten.Store(true)
			_, err := gosdk.Use(t.Context(), s, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
				all := make([]error, len(tools))
				for i, tool := range tools {
					_, all[i] = cs.CallTool(ctx, &mcp.CallToolParams{Name: tool})
				}
				return 0, errors.Join(all...)
			})
			requireLost(t, err)
			assert.NotSame(t, first, up(t, s))
		})
	}
}

// A question that a client's own handler hasn't answered says nothing of the connection, and nobody asks about that.
func TestQuestionWithoutAnAnswerMakesNoPing(t *testing.T) {
	errNobody := errors.New("nobody is there")
	var pings atomic.Int32
	counting := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "ping" {
				pings.Add(1)
			}
			return next(ctx, method, req)
		}
	}
	server := newServer(nil)
	addRaw(server, &mcp.Tool{Name: "asks"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": askedOf["elicitation"].params}}, nil
	})
	g := newGuard(t, resilience.Config{})
	client := newClient(&mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return nil, errNobody
	}}, gosdk.ClientMiddleware(g), counting)
	p := newHTTPPeerOf(t, server, latest, client)
	_, err := up(t, p.session).CallTool(t.Context(), &mcp.CallToolParams{Name: "asks"})
	require.ErrorIs(t, err, errNobody)
	assert.Zero(t, g.Breaker("asks").Failures())
	assert.Zero(t, pings.Load())
}
