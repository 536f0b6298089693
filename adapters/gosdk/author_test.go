package gosdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the author of a client's login or transport says of a failure decides as it would without the SDK, which joins it
// with an error of its own.
func TestWhatTheClientsAuthorSaysDecides(t *testing.T) {
	said := errors.New("said")
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	own := func(err error) error {
		return &resilience.Error{Code: "LOGIN_DOWN", Message: "The login is down.", Err: err}
	}
	guarded := func(calls int, err error) (got error) {
		g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1}, Retry: resilience.Retry{MaxRetries: -1}})
		for range calls {
			_, got = resilience.Do(t.Context(), g, "login", func(context.Context) (int, error) { return 0, err })
		}
		return got
	}

	for name, err := range map[string]error{
		"neutral":                          resilience.MarkNeutral(said),
		"neutral dial":                     resilience.MarkNeutral(errRefused),
		"neutral reset":                    resilience.MarkNeutral(reset),
		"neutral end":                      resilience.MarkNeutral(io.EOF),
		"neutral deadline":                 resilience.MarkNeutral(context.DeadlineExceeded),
		"neutral cancellation":             resilience.MarkNeutral(context.Canceled),
		"neutral within words":             fmt.Errorf("login: %w", resilience.MarkNeutral(fmt.Errorf("dial: %w", errRefused))),
		"neutral around a mark":            resilience.MarkNeutral(resilience.MarkBackend(errRefused)),
		"neutral around an Error":          resilience.MarkNeutral(own(resilience.MarkBackend(errRefused))),
		"two neutral":                      errors.Join(resilience.MarkNeutral(errRefused), resilience.MarkNeutral(said)),
		"neutral beside a reset":           errors.Join(resilience.MarkNeutral(said), reset),
		"neutral beside a dial":            errors.Join(errRefused, resilience.MarkNeutral(said)),
		"neutral beside another":           errors.Join(resilience.MarkNeutral(said), errors.New("other")),
		"neutral beside an Error":          errors.Join(resilience.MarkNeutral(said), own(said)),
		"neutral beside a mistake":         errors.Join(resilience.MarkNeutral(said), resilience.MarkInvalid(errRefused)),
		"an Error":                         own(said),
		"an Error of a dial":               own(errRefused),
		"an Error around neutral":          own(resilience.MarkNeutral(errRefused)),
		"invalid":                          resilience.MarkInvalid(errRefused),
		"permanent":                        resilience.MarkPermanent(errRefused),
		"transient":                        resilience.MarkTransient(said),
		"backend":                          resilience.MarkBackend(said),
		"backend around neutral":           resilience.MarkBackend(resilience.MarkNeutral(said)),
		"a guard's failure":                guarded(1, errRefused),
		"a guard's failure, neutral":       resilience.MarkNeutral(guarded(1, errRefused)),
		"a guard's open breaker":           guarded(2, errRefused),
		"a guard's open breaker and words": errors.Join(said, guarded(2, errRefused)),
		"what a guard hasn't counted":      guarded(1, resilience.MarkNeutral(errRefused)),
	} {
		for _, of := range []string{"login", "transport"} {
			for _, guard := range []string{"plain", "behind an adapter", "of the client"} {
				t.Run(fmt.Sprint(name, ", ", of, ", ", guard), func(t *testing.T) {
					var fails atomic.Bool
					isMeant := func(r *http.Request) bool {
						return fails.Load() && r.Method == http.MethodPost && bytes.Contains(bodyOf(r), []byte(`"tools/call"`))
					}
					h := serveHTTP(t, newPeer().server)
					l := &login{refusal: err}
					transport := &mcp.StreamableClientTransport{Endpoint: h.URL, OAuthHandler: l, DisableStandaloneSSE: true}
					if of == "transport" {
						transport.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
							if isMeant(r) {
								l.asked.Add(1)
								return nil, err
							}
							return http.DefaultTransport.RoundTrip(r)
						})}
					} else {
						unauthorized := func(w http.ResponseWriter, r *http.Request) bool {
							if !isMeant(r) {
								return false
							}
							w.WriteHeader(http.StatusUnauthorized)
							return true
						}
						h.intercept.Store(&unauthorized)
					}

					cfg := resilience.Config{Effect: resilience.ReadOnly, Retry: fast}
					g, alone := newGuard(t, cfg), newGuard(t, cfg)
					var sending []mcp.Middleware
					var opts []resilience.Option
					if guard != "plain" {
						opts = append(opts, behindAdapter)
					}
					if guard == "of the client" {
						sending = append(sending, gosdk.ClientMiddleware(g))
					}
					s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
						return newClient(nil, sending...).Connect(ctx, transport, speaking(legacy))
					}, sessionConfig{})
					first := up(t, s)

					fails.Store(true)
					var got error
					if guard == "of the client" {
						_, got = echo(t.Context(), s)
					} else {
						_, got = resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (*mcp.CallToolResult, error) {
							return echo(ctx, s)
						}, opts...)
					}
					fails.Store(false)
					tries := 0
					_, want := resilience.Do(t.Context(), alone, "echo", func(context.Context) (int, error) {
						tries++
						return 0, err
					}, opts...)

					require.ErrorIs(t, got, err)
					assert.Equal(t, alone.Breaker("echo").Failures(), g.Breaker("echo").Failures())
					isKept := first == up(t, s)
					if alone.Breaker("echo").Failures() == 0 {
						assert.True(t, isKept, "it says nothing of the session")
					}
					if isKept { // otherwise a retry finds none
						assert.Equal(t, resilience.AsError("", want).Code, resilience.AsError("", got).Code)
						assert.EqualValues(t, tries, l.asked.Load())
					}
				})
			}
		}
	}
}

// A dial that has failed gives the session up, whatever its author says but that it says nothing, and wherever the guard is.
func TestFailedDialGivesUpTheSessionWhateverItsAuthorSays(t *testing.T) {
	own := &resilience.Error{Code: "CRM_DOWN", Message: "The CRM is down.", Err: errRefused}
	canceled := &net.OpError{Op: "dial", Net: "tcp", Err: context.Canceled} // not by the caller
	for name, err := range map[string]error{
		"nothing":        errRefused,
		"canceled":       canceled,
		"backend":        resilience.MarkBackend(errRefused),
		"permanent":      resilience.MarkPermanent(errRefused),
		"transient":      resilience.MarkTransient(errRefused),
		"an Error":       own,
		"joined":         errors.Join(resilience.MarkNeutral(errors.New("said")), errRefused),
		"not the server": resilience.MarkNeutral(errRefused),
	} {
		for _, isWithin := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", guard within ", isWithin), func(t *testing.T) {
				var fails atomic.Bool
				h := serveHTTP(t, newPeer().server)
				httpClient := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					if fails.Load() && r.Method == http.MethodPost && bytes.Contains(bodyOf(r), []byte(`"tools/call"`)) {
						return nil, err
					}
					return http.DefaultTransport.RoundTrip(r)
				})}
				g := newGuard(t, resilience.Config{})
				var sending []mcp.Middleware
				if isWithin {
					sending = append(sending, gosdk.ClientMiddleware(g))
				}
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					return newClient(nil, sending...).Connect(ctx, &mcp.StreamableClientTransport{
						Endpoint: h.URL, HTTPClient: httpClient, DisableStandaloneSSE: true,
					}, speaking(legacy))
				}, sessionConfig{})
				first := up(t, s)
				fails.Store(true)
				var got error
				if isWithin {
					_, got = echo(t.Context(), s)
				} else {
					got = callBy(t, s, g)("echo")
				}
				require.ErrorIs(t, got, err)
				assert.Equal(t, name == "not the server", first == up(t, s))
			})
		}
	}
}

// A toolError is what somebody wraps the errors of calls in.
type toolError struct{ err error }

func (e *toolError) Error() string { return "tool: " + e.err.Error() }
func (e *toolError) Unwrap() error { return e.err }

// However often a login has failed within a use, and whatever is around that, its author's words decide.
func TestWhatTheClientsAuthorSaysWithinAUse(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	refusal := resilience.MarkNeutral(errRefused)
	dial := func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: h.URL, OAuthHandler: &login{refusal: refusal}, DisableStandaloneSSE: true,
		}, speaking(legacy))
	}
	s, other := newSession(t, dial, sessionConfig{}), newSession(t, dial, sessionConfig{})
	first, second := up(t, s), up(t, other)
	unauthorized := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	h.intercept.Store(&unauthorized)
	defer h.intercept.Store(nil)

	own := func(ctx context.Context, cs *mcp.ClientSession) error {
		_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
		return err
	}
	others := func(ctx context.Context, _ *mcp.ClientSession) error {
		_, err := echo(ctx, other)
		return err
	}
	marked := func(context.Context, *mcp.ClientSession) error {
		rejected := fmt.Errorf("%w: %w", &jsonrpc.Error{Code: -32005, Message: "rejected by transport"}, resilience.MarkNeutral(errBoom))
		return fmt.Errorf("calling %q: %w", "tools/call", resilience.MarkBackend(rejected))
	}
	for name, c := range map[string]struct {
		call    func(context.Context, *mcp.ClientSession) error
		wrap    func([]error) error
		counted int
	}{
		"one":               {own, func(errs []error) error { return &toolError{errs[0]} }, 0},
		"joined":            {own, func(errs []error) error { return &toolError{errors.Join(errs...)} }, 0},
		"beside another":    {own, func(errs []error) error { return &toolError{errors.Join(errs[0], errors.New("other"))} }, 1},
		"of another":        {others, func(errs []error) error { return &toolError{errs[0]} }, 0},
		"in a mark":         {marked, func(errs []error) error { return &toolError{errs[0]} }, 1},
		"of another joined": {others, func(errs []error) error { return &toolError{errors.Join(errs...)} }, 0},
	} {
		g := newGuard(t, resilience.Config{})
		var returned error
		_, err := resilience.Do(t.Context(), g, "echo", func(ctx context.Context) (int, error) {
			return gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
				var errs []error
				for range 12 {
					errs = append(errs, c.call(ctx, cs))
				}
				returned = c.wrap(errs)
				return 0, returned
			})
		})
		var wrapper *toolError
		var rejected *jsonrpc.Error
		require.ErrorAs(t, err, &wrapper, name)
		assert.Same(t, returned, wrapper, name)
		assert.ErrorAs(t, err, &rejected, name)
		assert.ErrorContains(t, errors.Unwrap(err), returned.Error(), name)
		assert.Equal(t, c.counted, g.Breaker("echo").Failures(), name)
	}
	assert.True(t, first == up(t, s) && second == up(t, other))
}

// A textError says what the SDK does.
type textError struct{ text string }

func (e *textError) Error() string { return e.text }

// However often an error has been judged, by uses around each other, it is the one that was returned.
func TestErrorThatIsJudgedTwiceIsStillTheSDKs(t *testing.T) {
	s := newSession(t, newPeer().dial, sessionConfig{})
	cause := &textError{`sending "tools/call": authorization cancelled: context canceled`}
	_, err := gosdk.Use(t.Context(), s, func(ctx context.Context, _ *mcp.ClientSession) (int, error) {
		return gosdk.Use(ctx, s, func(context.Context, *mcp.ClientSession) (int, error) {
			return 0, fmt.Errorf(`calling "tools/call": %w`, cause)
		})
	})
	var found *textError
	require.ErrorAs(t, err, &found)
	assert.Same(t, cause, found)
	assert.ErrorIs(t, err, cause)
}

// Who says that a request had no effect doesn't speak for an earlier round of its call, in which the tool was carried out.
func TestWhatTheClientsAuthorSaysOfALaterRound(t *testing.T) {
	down := resilience.NewConnector(func(context.Context) (int, error) { return 0, errRefused }, resilience.ConnectorConfig[int]{
		Backoff: steady(time.Hour),
	})
	defer down.Close()
	_, unmade := down.Get(t.Context())
	for name, err := range map[string]error{
		"transient":             resilience.MarkTransient(errors.New("said")),
		"transient and neutral": resilience.MarkNeutral(resilience.MarkTransient(errors.New("said"))),
		"neutral dial":          resilience.MarkNeutral(errRefused),
		"an Error of a dial":    resilience.AsError("login", errRefused),
		"a connector":           unmade,
		"invalid":               resilience.MarkInvalid(errors.New("said")),
		"invalid, in words":     &resilience.Error{Code: resilience.CodeValidation, Message: "Log in first."},
	} {
		for _, guarded := range guardedBy {
			t.Run(name+", "+guarded, func(t *testing.T) {
				var requests atomic.Int32
				s := newStore(t, mcp.InputRequestMap{"q": askedOf["roots"].params})
				s.login = &login{refusal: err}
				handler := s.Config.Handler
				s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Mcp-Method") == "tools/call" && requests.Add(1) == 2 {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					handler.ServeHTTP(w, r)
				})
				base := &http.Transport{}
				t.Cleanup(base.CloseIdleConnections)
				_, got := s.order(t, base, guarded)

				e := resilience.AsError("", got)
				require.ErrorIs(t, got, err)
				assert.False(t, e.Retryable)
				assert.Contains(t, e.Suggestion, "check whether it took effect")
				assert.EqualValues(t, 1, s.orders.Load())
			})
		}
	}
}

// In the first round nothing has been carried out, and neither has a call that its server rejects after another one.
func TestMistakeOfACallThatNothingCameBefore(t *testing.T) {
	p := newPeer()
	addRaw(p.server, &mcp.Tool{Name: "order"}, returns(nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no"}))
	h := serveHTTP(t, p.server)
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: h.URL, OAuthHandler: &login{refusal: resilience.MarkInvalid(errors.New("said"))}, DisableStandaloneSSE: true,
		}, speaking(legacy))
	}, sessionConfig{})
	g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
	order := func() string {
		_, err := resilience.Do(t.Context(), g, "order", func(ctx context.Context) (*mcp.CallToolResult, error) {
			return gosdk.Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
				_ = cs.Ping(ctx, nil)
				return cs.CallTool(ctx, &mcp.CallToolParams{Name: "order"})
			})
		})
		return resilience.AsError("", err).Suggestion
	}
	assert.Contains(t, order(), "Correct the arguments")

	unauthorized := func(w http.ResponseWriter, r *http.Request) bool {
		if !bytes.Contains(bodyOf(r), []byte(`"tools/call"`)) {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	h.intercept.Store(&unauthorized)
	_, err := resilience.Do(t.Context(), g, "order", func(ctx context.Context) (*mcp.CallToolResult, error) {
		return s.CallTool(ctx, &mcp.CallToolParams{Name: "order"})
	})
	assert.Contains(t, resilience.AsError("", err).Suggestion, "Correct the arguments")
}
