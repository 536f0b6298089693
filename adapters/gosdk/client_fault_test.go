//lint:file-ignore SA1019 servers still ask for sampling and roots
package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
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

// contacts is how a tool contacts its client.
var contacts = map[string]func(context.Context, *mcp.CallToolRequest) error{
	"elicitation": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return askedOf["elicitation"].ask(ctx, req.Session)
	},
	"sampling": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return askedOf["sampling"].ask(ctx, req.Session)
	},
	"roots": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return askedOf["roots"].ask(ctx, req.Session)
	},
	"ping": func(ctx context.Context, req *mcp.CallToolRequest) error { return req.Session.Ping(ctx, nil) },
	"progress": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return gosdk.NotifyProgress(ctx, req, 1, 0, "")
	},
	"a log message": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: "so far"})
	},
}

// isContact reports whether a server's message is one of contacts.
func isContact(method string) bool {
	switch method {
	case "elicitation/create", "sampling/createMessage", "roots/list", "ping",
		"notifications/progress", "notifications/message":
		return true
	}
	return false
}

// connectContacted connects a client that can be contacted in each way.
func (f *fixture) connectContacted() {
	f.Helper()
	answerAfter(&f.options, 0)
	f.connect(legacy)
	require.NoError(f, f.session.SetLoggingLevel(f.Context(), &mcp.SetLoggingLevelParams{Level: "info"}))
}

// The backend has no part in it, even if the error looks as if it had.
func TestFailureToReachTheClientIsNotTheBackends(t *testing.T) {
	for name, contact := range contacts {
		for reason, failure := range map[string]error{
			"the client is gone": syscall.ECONNRESET, "it takes too long": context.DeadlineExceeded,
		} {
			t.Run(fmt.Sprintf("%s, %s", name, reason), func(t *testing.T) {
				f := newFixture(t, resilience.Config{}, nil)
				f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if isContact(method) {
							return nil, failure
						}
						return next(ctx, method, req)
					}
				})
				gosdk.Protect(f.server, f.guard)
				runs := 0
				tool := func(ctx context.Context, req *mcp.CallToolRequest) error {
					runs++
					err := contact(ctx, req)
					assert.ErrorIs(t, err, failure)
					assert.EqualError(t, err, failure.Error())
					return fmt.Errorf("contact the client: %w", err)
				}
				f.raw("raw", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return nil, tool(ctx, req)
				})
				mcp.AddTool(f.server, &mcp.Tool{Name: "typed", Annotations: readOnly}, func(
					ctx context.Context, req *mcp.CallToolRequest, _ any,
				) (*mcp.CallToolResult, any, error) {
					return nil, nil, tool(ctx, req)
				})
				f.connectContacted()

				params := &mcp.CallToolParams{Name: "raw", Meta: mcp.Meta{"progressToken": "p"}}
				_, err := f.session.CallTool(t.Context(), params)
				assert.ErrorContains(t, err, "contact the client: "+failure.Error())
				params.Name = "typed"
				res, err := f.session.CallTool(t.Context(), params)
				require.NoError(t, err)
				assert.Equal(t, "contact the client: "+failure.Error(), text(t, res))

				assert.Equal(t, 2, runs, "nothing is repeated")
				for _, h := range f.guard.Health() {
					assert.Zero(t, h.ConsecutiveFailures)
				}
			})
		}
	}
}

// A tool may give its user less time than a pause would.
func TestUserWhoDoesNotAnswerInTimeIsNoFailureOfTheBackend(t *testing.T) {
	for name := range askedOf {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{})
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					asking, cancel := context.WithTimeout(ctx, 30*time.Second)
					defer cancel()
					err := contacts[name](asking, req)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					return nil, err
				})
				answerAfter(&f.options, thinks)
				f.receiving = []mcp.Middleware{slowRoots(thinks)}
				f.connect(legacy)

				_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
				assert.ErrorContains(t, err, context.DeadlineExceeded.Error())
				assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
			})
		})
	}
}

// A protocol error that a handler passes on as it is reaches the client with its data.
func TestProtocolErrorFromMiddlewareTowardsTheClientIsUnchanged(t *testing.T) {
	sent := &jsonrpc.Error{Code: 42, Message: "not now", Data: []byte(`{"until":"noon"}`)}
	f := newFixture(t, resilience.Config{}, nil)
	f.server.AddSendingMiddleware(func(mcp.MethodHandler) mcp.MethodHandler {
		return func(context.Context, string, mcp.Request) (mcp.Result, error) { return nil, sent }
	})
	gosdk.Protect(f.server, f.guard)
	f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, req.Session.Ping(ctx, nil)
	})
	f.connectBlind(legacy)

	got := f.protocolError("x")
	assert.Equal(t, sent, got)
}

// newWithDeafClients returns a protected server whose clients don't read, until release, how tools contact them.
func newWithDeafClients(t *testing.T, cfg resilience.Config) (f *fixture, release func()) {
	f = newFixture(t, cfg, nil)
	reads := make(chan struct{})
	f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if isContact(method) {
				<-reads // whatever becomes of the context, as in the SDK
			}
			return next(ctx, method, req)
		}
	})
	gosdk.Protect(f.server, f.guard)
	return f, sync.OnceFunc(func() { close(reads) })
}

// newWithSlowClients returns a protected server whose clients take some time to read how tools contact them.
func newWithSlowClients(t *testing.T, cfg resilience.Config, takes time.Duration) *fixture {
	f := newFixture(t, cfg, nil)
	f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if isContact(method) {
				time.Sleep(takes)
			}
			return next(ctx, method, req)
		}
	})
	gosdk.Protect(f.server, f.guard)
	return f
}

// Writing to a client that doesn't read blocks. A tool goes on without it, and has nearly all of its time.
func TestClientThatDoesNotReadShutsNoTool(t *testing.T) {
	for _, name := range []string{"ping", "progress", "a log message"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, release := newWithDeafClients(t, resilience.Config{
					MaxAbandoned: 2, Breaker: resilience.BreakerConfig{Failures: 2},
					Tools: map[string]resilience.Tool{"x": {Timeout: time.Second, MaxInFlight: 1, Effect: resilience.ReadOnly}},
				})
				defer release()
				var failed []error
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if len(failed) < 10 {
						failed = append(failed, contacts[name](ctx, req), contacts[name](ctx, req))
						time.Sleep(800 * time.Millisecond)
						return textResult("done"), nil
					}
					if resilience.Attempt(ctx) == 1 {
						return nil, resilience.MarkTransient(errBoom)
					}
					return textResult("done"), nil
				})
				f.connectContacted()

				for range 5 {
					params := &mcp.CallToolParams{Name: "x", Meta: mcp.Meta{"progressToken": "p"}}
					_, err := f.session.CallTool(t.Context(), params)
					assert.NoError(t, err)
				}
				for _, err := range failed {
					assert.ErrorContains(t, err, "doesn't read")
				}
				health := f.guard.Health()[0]
				assert.Zero(t, health.InFlight)
				assert.Zero(t, health.Abandoned)
				assert.Zero(t, health.ConsecutiveFailures)
				release()
				assert.Equal(t, "done", text(t, f.call("x")), "nobody was asked, so it is called again")
			})
		})
	}
}

// A question waits for a person, also while it is written, until its client leaves.
func TestQuestionThatIsNotReadWaits(t *testing.T) {
	for name := range askedOf {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, release := newWithDeafClients(t, resilience.Config{MaxAbandoned: 1})
				defer release()
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return nil, contacts[name](ctx, req)
				})
				f.connectContacted()

				ctx, leave := context.WithTimeout(t.Context(), time.Hour)
				defer leave()
				_, err := f.session.CallTool(ctx, &mcp.CallToolParams{Name: "x"})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(time.Second)
				health := f.guard.Health()[0]
				assert.Zero(t, health.InFlight)
				assert.Zero(t, health.Abandoned, "the tool has gone on")
				assert.Zero(t, health.ConsecutiveFailures)
			})
		})
	}
}

// What a tool tells a slow client, again and again, extends no call.
func TestSlowClientKeepsNoCallThatHangs(t *testing.T) {
	for _, name := range []string{"ping", "progress", "a log message"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newWithSlowClients(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Timeout: 10 * time.Second}},
				}, 250*time.Millisecond)
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for ctx.Err() == nil {
						assert.NoError(t, contacts[name](ctx, req))
						time.Sleep(5 * time.Second)
					}
					return nil, ctx.Err()
				})
				f.connectContacted()

				start := time.Now()
				params := &mcp.CallToolParams{Name: "x", Meta: mcp.Meta{"progressToken": "p"}}
				_, err := f.session.CallTool(t.Context(), params)
				assert.NoError(t, err)
				assert.Equal(t, 10*time.Second, time.Since(start))
				time.Sleep(time.Minute)
			})
		})
	}
}

// A tool waits for its clients for a second, or a tenth of its time, and for a tenth of the time since. What it asks
// people is another matter, and so is what it does once it has returned.
func TestAttemptWaitsForItsClientsForATenthOfItsTime(t *testing.T) {
	for timeout, want := range map[time.Duration]struct {
		read  int
		takes time.Duration // the first of what isn't
	}{
		time.Minute:     {3, 100 * time.Millisecond},
		5 * time.Second: {1, 200 * time.Millisecond},
		time.Second:     {0, 100 * time.Millisecond},
	} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newWithSlowClients(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Timeout: timeout}},
				}, 300*time.Millisecond)
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					progress, begun := 0.0, time.Now()
					report := func() error {
						progress, begun = progress+1, time.Now()
						return gosdk.NotifyProgress(ctx, req, progress, 0, "")
					}
					if timeout == time.Minute {
						assert.NoError(t, contacts["elicitation"](ctx, req))
					}
					for range want.read {
						assert.NoError(t, report())
					}
					assert.ErrorContains(t, report(), "doesn't read")
					assert.Equal(t, want.takes, time.Since(begun))
					assert.ErrorContains(t, report(), "doesn't read")
					assert.Zero(t, time.Since(begun), "it hasn't read the one before")
					time.Sleep(300 * time.Millisecond)
					assert.ErrorContains(t, report(), "doesn't read")
					assert.Equal(t, 30*time.Millisecond, time.Since(begun))
					time.Sleep(290 * time.Millisecond)
					assert.ErrorContains(t, report(), "doesn't read")
					assert.Equal(t, 29*time.Millisecond, time.Since(begun))
					if timeout == time.Minute {
						time.Sleep(10 * time.Second)
						for range want.read {
							assert.NoError(t, report())
						}
						assert.ErrorContains(t, report(), "doesn't read")
						assert.Equal(t, want.takes, time.Since(begun))
					}

					go func() {
						time.Sleep(time.Minute)
						for range 5 {
							note := &mcp.ProgressNotificationParams{ProgressToken: "other"}
							assert.NoError(t, req.Session.NotifyProgress(context.WithoutCancel(ctx), note))
						}
					}()
					return textResult("done"), nil
				})
				answerAfter(&f.options, 5*time.Second)
				f.connect(legacy)
				params := &mcp.CallToolParams{Name: "x", Meta: mcp.Meta{"progressToken": "p"}}
				res, err := f.session.CallTool(t.Context(), params)
				assert.NoError(t, err)
				assert.Equal(t, "done", text(t, res))
				time.Sleep(time.Hour)
			})
		})
	}
}

// A client that reads within an ordinary time is told everything, however long a call is, also on two goroutines.
func TestClientThatReadsIsToldEverything(t *testing.T) {
	for _, name := range []string{"ping", "progress", "a log message"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newWithSlowClients(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Timeout: time.Hour}},
				}, 40*time.Millisecond)
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for range 600 {
						sent := make(chan error, 2)
						for range 2 {
							go func() { sent <- contacts[name](ctx, req) }()
						}
						assert.NoError(t, errors.Join(<-sent, <-sent))
						time.Sleep(time.Second)
					}
					return textResult("done"), nil
				})
				f.connectContacted()
				params := &mcp.CallToolParams{Name: "x", Meta: mcp.Meta{"progressToken": "p"}}
				res, err := f.session.CallTool(t.Context(), params)
				require.NoError(t, err)
				assert.Equal(t, "done", text(t, res))
			})
		})
	}
}

// The SDK writes one message at a time, so what several goroutines wait for is one wait.
func TestWaitingForSeveralMessagesAtOnceIsOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: time.Minute}}}, nil)
		writing := make(chan struct{}, 1)
		f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				writing <- struct{}{}
				defer func() { <-writing }()
				time.Sleep(5 * time.Millisecond)
				return next(ctx, method, req)
			}
		})
		gosdk.Protect(f.server, f.guard)
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					for range 15 {
						assert.NoError(t, contacts["a log message"](ctx, req))
					}
				})
			}
			wg.Wait()
			return textResult("done"), nil
		})
		f.connectContacted()
		assert.Equal(t, "done", text(t, f.call("x")))
	})
}

// A tool that can't tell its client more, and doesn't care, leaves one message behind and not each of them.
func TestNothingIsSentBehindWhatTheClientDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := newWithDeafClients(t, resilience.Config{})
		defer release()
		var seen []float64
		f.options.ProgressNotificationHandler = func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			seen = append(seen, req.Params.Progress)
		}
		var failed []error
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for i := range 4 {
				failed = append(failed, gosdk.NotifyProgress(ctx, req, float64(i), 0, ""))
				if i == 2 {
					release()
					synctest.Wait()
				}
			}
			return textResult("done"), nil
		})
		f.connect(legacy)

		start := time.Now()
		params := &mcp.CallToolParams{Name: "x", Meta: mcp.Meta{"progressToken": "p"}}
		_, err := f.session.CallTool(t.Context(), params)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(start))
		synctest.Wait()
		require.Len(t, failed, 4)
		for _, err := range failed[:3] {
			assert.ErrorContains(t, err, "doesn't read")
		}
		assert.NoError(t, failed[3])
		assert.Equal(t, []float64{3}, seen)
	})
}

// Sending is done on another goroutine, where a panic would end the process.
func TestMiddlewareThatPanicsTowardsTheClientFailsOnlyItsCall(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var ended *resilience.Error
			f := newFixture(t, resilience.Config{Observers: []resilience.Observer{{
				End: func(_ context.Context, e resilience.CallEnd) { ended = e.Err },
			}}}, nil)
			f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					if isContact(method) {
						end()
					}
					return next(ctx, method, req)
				}
			})
			gosdk.Protect(f.server, f.guard)
			f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, req.Session.Ping(ctx, nil)
			})
			f.connect(legacy)
			assert.Equal(t, resilience.CodeToolFailed, metadataOf(t, f.call("x")).Code)
			assert.Equal(t, 1, f.guard.Health()[0].ConsecutiveFailures)
			require.NoError(t, f.guard.Flush(t.Context()))
			var p *resilience.PanicError
			assert.Equal(t, name == "panic", errors.As(ended, &p))
			assert.Equal(t, name == "Goexit", errors.Is(ended, resilience.ErrGoexit))
			if p != nil {
				assert.Equal(t, "boom", p.Value)
			}
		})
	}
}
