//lint:file-ignore SA1019 servers still log
package gosdk_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
					if name == "ping" {
						assert.ErrorContains(t, err, "doesn't read")
					} else {
						assert.NoError(t, err, "it may be read later")
					}
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
// people is another matter, and so is what it does once it has returned. The client hears all of it before the answer.
func TestAttemptWaitsForItsClientsForAHundredthOfItsTime(t *testing.T) {
	const ms = time.Millisecond
	for timeout, want := range map[time.Duration][]time.Duration{ // what each of several notifications takes
		time.Minute:     {30 * ms, 30 * ms, 30 * ms, 10 * ms, 0},
		5 * time.Second: {30 * ms, 20 * ms, 0},
		time.Second:     {10 * ms, 0},
	} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newWithSlowClients(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Timeout: timeout}},
				}, 30*ms)
				told := 0.0
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					took := func(contact func() error) time.Duration {
						begun := time.Now()
						assert.NoError(t, contact())
						return time.Since(begun)
					}
					tell := func() error {
						told++
						return gosdk.NotifyProgress(ctx, req, told, 0, "")
					}
					if timeout == time.Minute {
						assert.Equal(t, 5030*ms, took(func() error { return contacts["elicitation"](ctx, req) }))
					}
					for i, want := range want {
						got := took(tell)
						assert.InDelta(t, want, got, float64(2*ms), "notification %d", i)
					}
					if timeout == time.Minute {
						time.Sleep(10 * time.Second)
						assert.Equal(t, 30*ms, took(tell))
						assert.Equal(t, 30*ms, took(tell))
						assert.Equal(t, 30*ms, took(func() error { return contacts["ping"](ctx, req) }))
					}

					go func() {
						time.Sleep(time.Minute)
						for range 5 {
							note := &mcp.ProgressNotificationParams{ProgressToken: "other"}
							assert.Equal(t, 30*ms, took(func() error {
								return req.Session.NotifyProgress(context.WithoutCancel(ctx), note)
							}))
						}
					}()
					return textResult("done"), nil
				})
				answerAfter(&f.options, 5*time.Second)
				heard := make(chan float64, 100)
				f.options.ProgressNotificationHandler = func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
					heard <- req.Params.Progress
				}
				f.connect(legacy)
				params := &mcp.CallToolParams{Name: "x", Meta: mcp.Meta{"progressToken": "p"}}
				res, err := f.session.CallTool(t.Context(), params)
				assert.NoError(t, err)
				assert.Equal(t, "done", text(t, res))
				synctest.Wait()
				require.Len(t, heard, int(told))
				for n := range int(told) {
					assert.EqualValues(t, n+1, <-heard)
				}
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
				time.Sleep(500 * time.Microsecond)
				return next(ctx, method, req)
			}
		})
		gosdk.Protect(f.server, f.guard)
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			begun := time.Now()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					for range 15 {
						assert.NoError(t, contacts["a log message"](ctx, req))
					}
				})
			}
			wg.Wait()
			assert.Equal(t, 75*time.Millisecond, time.Since(begun), "all is written")
			return textResult("done"), nil
		})
		f.connectContacted()
		assert.Equal(t, "done", text(t, f.call("x")))
	})
}

// What a client doesn't read is dropped with the end of its call, except the message that is being written. A question
// waits for what is told before, and isn't asked if that isn't read.
func TestWhatAClientDoesNotReadEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := newWithDeafClients(t, resilience.Config{})
		defer release()
		var seen []float64
		f.options.ProgressNotificationHandler = func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			seen = append(seen, req.Params.Progress)
		}
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for i := range 4 {
				assert.NoError(t, gosdk.NotifyProgress(ctx, req, float64(i), 0, ""))
			}
			assert.ErrorContains(t, contacts["elicitation"](ctx, req), "doesn't read")
			return textResult("done"), nil
		})
		f.connectContacted()

		start := time.Now()
		params := &mcp.CallToolParams{Name: "x", Meta: mcp.Meta{"progressToken": "p"}}
		_, err := f.session.CallTool(t.Context(), params)
		require.NoError(t, err)
		assert.Equal(t, 2100*time.Millisecond, time.Since(start), "it waits for 100ms, and asks and ends for a second each")
		assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
		release()
		synctest.Wait()
		assert.Equal(t, []float64{0}, seen)
	})
}

// A client whose messages take their time, as behind an event store that writes each to a disk, loses nothing, and may be
// asked.
func TestClientWhoseMessagesTakeTheirTimeLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWithSlowClients(t, resilience.Config{
			Breaker: resilience.BreakerConfig{Failures: 1},
			Tools:   map[string]resilience.Tool{"x": {Timeout: 2 * time.Second, MaxInFlight: 1}},
		}, 15*time.Millisecond)
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for range 2 {
				for range 400 {
					assert.NoError(t, contacts["a log message"](ctx, req))
				}
				assert.NoError(t, contacts["elicitation"](ctx, req))
			}
			return textResult("done"), nil
		})
		answerAfter(&f.options, 0)
		heard := 0
		f.options.LoggingMessageHandler = func(context.Context, *mcp.LoggingMessageRequest) { heard++ }
		f.connectContacted()
		for range 3 {
			assert.Equal(t, "done", text(t, f.call("x")))
			assert.Equal(t, 800, heard)
			heard = 0
		}
		assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
	})
}

// An answer and a question wait for what was told before them, and not for what is told meanwhile.
func TestNothingWaitsForWhatIsToldAfterIt(t *testing.T) {
	for _, name := range []string{"answer", "question", "timeout"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newWithSlowClients(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Timeout: 2 * time.Second}},
				}, 50*time.Millisecond)
				work, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for range 3 {
						go func() {
							for work.Err() == nil {
								_ = contacts["a log message"](context.WithoutCancel(ctx), req)
								time.Sleep(20 * time.Millisecond)
							}
						}()
					}
					time.Sleep(500 * time.Millisecond)
					switch name {
					case "question":
						assert.NoError(t, contacts["elicitation"](ctx, req))
					case "timeout":
						<-work.Done()
					}
					return textResult("done"), nil
				})
				f.connectContacted()
				begun := time.Now()
				res, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
				assert.NoError(t, err)
				assert.Equal(t, name == "timeout", res.IsError)
				if name == "timeout" {
					assert.Equal(t, 2*time.Second, time.Since(begun), "it is the guard's answer")
				}
				assert.Less(t, time.Since(begun), time.Minute, "until then it tells more")
				time.Sleep(time.Hour)
			})
		})
	}
}

// What is dropped keeps no sender waiting, who is told.
func TestSenderOfADroppedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := newWithDeafClients(t, resilience.Config{})
		defer release()
		sent := make(chan error, 1)
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			assert.NoError(t, contacts["a log message"](ctx, req))
			time.AfterFunc(500*time.Millisecond, func() {
				sent <- contacts["a log message"](context.WithoutCancel(ctx), req)
			})
			return textResult("done"), nil
		})
		f.connectContacted()
		assert.Equal(t, "done", text(t, f.call("x")))
		err := <-sent
		assert.ErrorContains(t, err, "doesn't read")
		assert.Equal(t, resilience.ClassNeutral, resilience.Classify(err))
	})
}

// A ping is sent if there is time for its answer, and once the client has read the one before.
func TestPingOfAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: 10 * time.Second}}}, nil)
		var takes, pings atomic.Int64
		f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "ping" {
					pings.Add(1)
				}
				time.Sleep(time.Duration(takes.Load()))
				return next(ctx, method, req)
			}
		})
		gosdk.Protect(f.server, f.guard)
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			takes.Store(int64(5 * time.Second))
			for range 5 {
				assert.Error(t, contacts["ping"](ctx, req))
				time.Sleep(500 * time.Millisecond)
			}
			assert.EqualValues(t, 1, pings.Load(), "it isn't read")

			time.Sleep(3 * time.Second)
			takes.Store(int64(time.Second))
			begun := time.Now()
			assert.NoError(t, contacts["a log message"](ctx, req))
			assert.Equal(t, 100*time.Millisecond, time.Since(begun))
			assert.Error(t, contacts["ping"](ctx, req))
			assert.InDelta(t, 500*time.Millisecond, time.Since(begun), float64(100*time.Millisecond), "it has waited before")
			synctest.Wait()
			assert.EqualValues(t, 2, pings.Load())
			assert.Error(t, contacts["ping"](ctx, req))
			synctest.Wait()
			assert.EqualValues(t, 2, pings.Load(), "no time is left")
			time.Sleep(2 * time.Second)
			takes.Store(0)
			assert.NoError(t, contacts["ping"](ctx, req))
			return textResult("done"), nil
		})
		f.connectContacted()
		assert.Equal(t, "done", text(t, f.call("x")))
	})
}

// A client may leave before it has read all.
func TestClientThatLeavesBeforeItHasReadAll(t *testing.T) {
	for _, takes := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, resilience.Config{}, nil)
				var sent atomic.Int64
				f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						time.Sleep(takes)
						sent.Add(1)
						return next(ctx, method, req)
					}
				})
				gosdk.Protect(f.server, f.guard)
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for range 500 {
						assert.NoError(t, contacts["a log message"](ctx, req))
					}
					return textResult("done"), nil
				})
				f.connectContacted()
				ctx, leave := context.WithTimeout(t.Context(), 5*time.Second)
				defer leave()
				_, err := f.session.CallTool(ctx, &mcp.CallToolParams{Name: "x"})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(time.Hour)
				assert.InDelta(t, 5*time.Second/takes, sent.Load(), 2)
			})
		})
	}
}

// A timeout waits for no client that still has much to read, whether or not the tool has heeded its context by then.
func TestTimeoutWaitsForNoSlowClient(t *testing.T) {
	for name, obeys := range map[string]bool{"of a tool that heeds its context": true, "of one that doesn't": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: 10 * time.Second}}},
					func(next mcp.MethodHandler) mcp.MethodHandler {
						return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
							if method == "notifications/message" {
								time.Sleep(100 * time.Millisecond) // so slow is the client
							}
							return next(ctx, method, req)
						}
					})
				c.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for n := range 300 {
						assert.NoError(t, req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: n}))
					}
					<-ctx.Done()
					if !obeys {
						time.Sleep(time.Minute)
					}
					return nil, ctx.Err()
				})
				c.join("slow")
				begun := time.Now()
				require.Contains(t, text(t, c.call("x")), resilience.CodeTimeout)
				require.InDelta(t, 10*time.Second, time.Since(begun), float64(time.Millisecond))
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// A tool that needs nearly all of its time is done in time for a client that doesn't read, which could shut it for others.
func TestClientThatDoesNotReadMakesNoToolTimeOut(t *testing.T) {
	for _, works := range []time.Duration{8200 * time.Millisecond, 9 * time.Second, 9700 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var deaf atomic.Bool
			c := newCrowd(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: 10 * time.Second}}},
				func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if deaf.Load() && method == "notifications/message" {
							time.Sleep(time.Hour)
						}
						return next(ctx, method, req)
					}
				})
			c.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				for range works / (100 * time.Millisecond) {
					assert.NoError(t, req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: "working"}))
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return textResult("done"), nil
			})
			c.join("client")
			deaf.Store(true)
			for range 5 {
				require.Equal(t, "done", text(t, c.call("x")))
			}
			require.Zero(t, c.guard.Breaker("x").Failures())
			deaf.Store(false)
			time.Sleep(10 * time.Hour)
			require.Equal(t, "done", text(t, c.call("x")))
		})
	}
}
