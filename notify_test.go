package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loggedGuard returns a guard with observers, and what it logs about them.
func loggedGuard(
	t *testing.T, x resilience.Tool, all ...resilience.Observer,
) (*resilience.Guard, *bytes.Buffer) {
	t.Helper()
	log, out := textLog(slog.LevelInfo)
	cfg := observed(x, all...)
	cfg.Log = log
	return newGuard(t, cfg), out
}

// assertLogged asserts how often the log contains a text.
func assertLogged(t *testing.T, log *bytes.Buffer, times int, text string) {
	t.Helper()
	assert.Equal(t, times, strings.Count(log.String(), text), log.String())
}

// misbehaving returns an observer that calls do for each event.
func misbehaving(do func()) resilience.Observer {
	return resilience.Observer{
		Start:   func(context.Context, resilience.CallStart) context.Context { do(); return nil },
		Retry:   func(context.Context, resilience.CallRetry) { do() },
		End:     func(context.Context, resilience.CallEnd) { do() },
		Late:    func(context.Context, resilience.LateResult) { do() },
		Breaker: func(resilience.BreakerChange) { do() },
	}
}

// starting returns an observer with a Start that returns no context.
func starting(start func()) resilience.Observer {
	return resilience.Observer{
		Start: func(context.Context, resilience.CallStart) context.Context { start(); return nil },
	}
}

func TestMisbehavingObserverAffectsNeitherCallsNorOtherObservers(t *testing.T) {
	for name, tc := range map[string]struct {
		do       func(release chan struct{})
		noStart  bool // it misbehaves later only: a bad Start keeps the other events away
		warnings []string
	}{
		"panics": {
			do:       func(chan struct{}) { panic("p") },
			warnings: []string{"an observer panicked"},
		},
		"calls Goexit": {
			do: func(chan struct{}) { runtime.Goexit() },
		},
		"blocks": {
			do:       func(release chan struct{}) { <-release },
			warnings: []string{"an observer's Start takes too long", "an observer has caught up"},
		},
		"panics later": {
			do:       func(chan struct{}) { panic("p") },
			noStart:  true,
			warnings: []string{"an observer panicked"},
		},
		"calls Goexit later": {
			do:      func(chan struct{}) { runtime.Goexit() },
			noStart: true,
		},
		"blocks later": {
			do:      func(release chan struct{}) { <-release },
			noStart: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 20
				var r recorder
				release := make(chan struct{})
				bad := misbehaving(func() { tc.do(release) })
				if tc.noStart {
					bad.Start = nil
				}
				tool := resilience.Tool{Effect: resilience.ReadOnly}
				g, log := loggedGuard(t, tool, bad, r.observer(), resilience.Observer{})

				start := time.Now()
				for range calls {
					_, err := resilience.Do(t.Context(), g, "x", failing(1, resilience.MarkTransient(errBoom)))
					require.NoError(t, err)
				}
				trip(t, g.Breaker("x"))
				synctest.Wait()

				const retryDelays, blockedStart = calls * 100 * time.Millisecond, 100 * time.Millisecond
				assert.LessOrEqual(t, time.Since(start), retryDelays+blockedStart)
				assert.Len(t, received[resilience.CallStart](&r), calls)
				assert.Len(t, received[resilience.CallRetry](&r), calls)
				assert.Len(t, received[resilience.CallEnd](&r), calls)
				assert.Len(t, received[resilience.BreakerChange](&r), 1)

				g.Breaker("x").Reset()
				_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
				require.ErrorIs(t, err, resilience.CodeTimeout)
				time.Sleep(time.Hour)
				assert.Len(t, received[resilience.LateResult](&r), 1)

				close(release)
				synctest.Wait()
				_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil))
				flush(t, g)
				for _, warning := range tc.warnings {
					assertLogged(t, log, 1, warning)
				}
				assertLogged(t, log, len(tc.warnings), "Observers[0]")
				assertLogged(t, log, len(tc.warnings), "\n")
			})
		})
	}
}

func TestObserverStartThatBlocksDelaysOneCallBy100ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		release := make(chan struct{})
		blocks := r.observer()
		blocks.Start = starting(func() { <-release }).Start
		g, log := loggedGuard(t, resilience.Tool{}, blocks)

		start := time.Now()
		for range 20 {
			mustSucceed(t, g)
		}
		assert.Equal(t, 100*time.Millisecond, time.Since(start))

		trip(t, g.Breaker("another")) // which isn't an event of a call
		flush(t, g)
		assert.Len(t, received[resilience.BreakerChange](&r), 1)
		assert.Empty(t, received[resilience.CallEnd](&r))
		assertLogged(t, log, 1, "\n")

		close(release)
		synctest.Wait()
		mustSucceed(t, g)
		flush(t, g)
		assert.Len(t, received[resilience.CallEnd](&r), 1)
		assertLogged(t, log, 1, "caught up\" lost=20")
		assertLogged(t, log, 2, "\n")
	})
}

func TestObserverStartUsesUpNoneOfTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := starting(func() { time.Sleep(90 * time.Millisecond) })
		g := observedGuard(t, resilience.Tool{Timeout: 50 * time.Millisecond}, slow, slow)

		r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
			time.Sleep(40 * time.Millisecond)
			return 0, nil
		})
		assert.Nil(t, r.Err)
		assert.Equal(t, 40*time.Millisecond, r.Duration)

		_, err := resilience.Do(t.Context(), g, "x", obeyInt)
		assert.ErrorIs(t, err, resilience.CodeTimeout)
	})
}

func TestObserverThatIsSlowByTurnsDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		slowByTurns := starting(func() {
			if n++; n%2 == 0 {
				time.Sleep(110 * time.Millisecond)
			}
		})
		slowByTurns.End = func(context.Context, resilience.CallEnd) {}
		g, log := loggedGuard(t, resilience.Tool{}, slowByTurns)
		call := func(times int) {
			for range times {
				mustSucceed(t, g)
				time.Sleep(100 * time.Millisecond)
			}
			flush(t, g)
		}

		call(100)
		assert.LessOrEqual(t, strings.Count(log.String(), "\n"), 2, log.String())

		time.Sleep(time.Minute)
		call(4)
		assertLogged(t, log, 2, "events are lost")
	})
}

// An observer that loses an event, catches up, and loses another one is reported twice only if a minute has passed.
func TestLossesAreReportedAtMostOnceAMinute(t *testing.T) {
	for apart, want := range map[time.Duration]int{time.Minute - 1: 1, time.Minute: 2} {
		runInBubble(t, apart.String(), func(t *testing.T) {
			n := 0
			slow := starting(func() {
				if n++; n != 2 {
					time.Sleep(110 * time.Millisecond)
				}
			})
			slow.End = func(context.Context, resilience.CallEnd) {}
			g, log := loggedGuard(t, resilience.Tool{}, slow)
			start := time.Now()
			mustSucceed(t, g)
			time.Sleep(time.Second)
			mustSucceed(t, g)
			flush(t, g)
			time.Sleep(time.Until(start.Add(apart)))
			mustSucceed(t, g)
			time.Sleep(time.Second)
			flush(t, g)
			assertLogged(t, log, want, "events are lost")
		})
	}
}

func TestLogThatBlocksDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		cfg := observed(resilience.Tool{}, misbehaving(func() { panic("p") }))
		cfg.Log = slog.New(handlerFunc(func(context.Context, slog.Record) error { <-release; panic("p") }))
		g := newGuard(t, cfg)

		start := time.Now()
		for range 100 {
			mustSucceed(t, g)
		}
		assert.Zero(t, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, g.Flush(ctx), "Flush waits for the log, too")
		assert.Equal(t, time.Minute, time.Since(start))

		close(release)
		flush(t, g)
	})
}

func TestMisbehavingObserverIsReportedToTheDefaultLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := observedGuard(t, resilience.Tool{}, starting(func() { panic("p") }))
		log, out := textLog(slog.LevelInfo)
		setDefaultLog(t, log)

		mustSucceed(t, g)
		flush(t, g)

		assertLogged(t, out, 1, "an observer panicked")
	})
}

type callingString struct{ do func() }

func (c callingString) String() string { c.do(); return "" }

// The value that an observer panics with isn't formatted while the call waits.
func TestObserverMayPanicWithAValueThatMisbehaves(t *testing.T) {
	for name, do := range map[string]func(){"calls Goexit": runtime.Goexit, "panics": func() { panic("p") }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _ := loggedGuard(t, resilience.Tool{}, starting(func() { panic(callingString{do}) }))

				succeeded := make(chan bool, 1)
				go func() {
					ok := false
					defer func() { succeeded <- ok }()
					_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
					ok = err == nil
				}()

				assert.True(t, <-succeeded)
				flush(t, g)
			})
		})
	}
}

// The client may reuse its _meta.
func TestObserverReceivesACopyOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := observedGuard(t, resilience.Tool{}, r.observer())
		meta := map[string]any{"traceparent": "1"}
		request := resilience.Request{RequestInfo: resilience.RequestInfo{Meta: meta}}

		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil), resilience.ForRequest(request))
		meta["traceparent"] = "2"

		starts := received[resilience.CallStart](&r)
		require.Len(t, starts, 1)
		assert.Equal(t, "1", starts[0].Request.Meta["traceparent"])
	})
}

// Both the caller and an observer may modify the error that they receive.
func TestObserverReceivesACopyOfTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := resilience.Observer{
			End: func(_ context.Context, e resilience.CallEnd) { e.Err.Suggestion = "changed" },
		}
		g := observedGuard(t, resilience.Tool{}, resilience.LogObserver(slog.New(slog.DiscardHandler)), changes)

		for range 100 {
			_, err := resilience.Do(t.Context(), g, "x", failing(9, resilience.MarkPermanent(errBoom)))
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			assert.NotEqual(t, "changed", e.Suggestion)
			e.RetryAfter = time.Second
		}
		flush(t, g)
	})
}

// It can neither hide values of the caller's context nor end the call.
func TestObserverAddsValuesToTheContextOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan context.Context, 1)
		adds := resilience.Observer{
			Start: func(ctx context.Context, e resilience.CallStart) context.Context {
				assert.Equal(t, "caller's", ctx.Value(ctxKey("caller")))
				assert.Equal(t, "tools/call", e.Request.Method)
				ctx, cancel := context.WithCancel(context.WithValue(ctx, ctxKey("a"), 1))
				cancel()
				return ctx
			},
			End: func(ctx context.Context, _ resilience.CallEnd) { ended <- ctx },
		}
		replaces := resilience.Observer{Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			assert.Equal(t, 1, ctx.Value(ctxKey("a")))
			assert.NoError(t, ctx.Err())
			ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), ctxKey("b"), 2))
			cancel(errors.New("another"))
			return ctx
		}}
		addsNothing := resilience.Observer{
			Start: func(context.Context, resilience.CallStart) context.Context { return nil },
		}
		g := observedGuard(t, resilience.Tool{}, adds, replaces, addsNothing, resilience.Observer{})
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), ctxKey("caller"), "caller's"))
		info := resilience.RequestInfo{Method: "tools/call"}

		_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			assert.NoError(t, ctx.Err())
			assert.NoError(t, context.Cause(ctx))
			assert.Equal(t, "caller's", ctx.Value(ctxKey("caller")))
			assert.Equal(t, 2, ctx.Value(ctxKey("b")))
			cancel(errBoom)
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}, resilience.ForRequest(resilience.Request{RequestInfo: info}))
		flush(t, g)

		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.ErrorIs(t, err, errBoom)
		ctx = <-ended
		assert.Equal(t, 2, ctx.Value(ctxKey("b")))
		assert.NoError(t, context.Cause(context.WithValue(ctx, ctxKey("c"), 3)))
	})
}

// A countedContext counts how often a key is looked up that isn't there.
type countedContext struct {
	context.Context
	lookups *int
}

func (c countedContext) Value(key any) any {
	if key == ctxKey("missing") {
		*c.lookups++
	}
	return c.Context.Value(key)
}

func TestObserverContextsOfNestedCallsAreOneChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		adds := resilience.Observer{Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			return context.WithValue(ctx, ctxKey("k"), 1)
		}}
		g := newGuard(t, resilience.Config{Observers: []resilience.Observer{adds, adds}})
		var nested func(context.Context, int) (int, error)
		nested = func(ctx context.Context, depth int) (int, error) {
			if depth == 0 {
				assert.Nil(t, ctx.Value(ctxKey("missing")))
				return 0, nil
			}
			return resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) { return nested(ctx, depth-1) })
		}

		lookups := 0
		_, err := nested(countedContext{t.Context(), &lookups}, 12)

		require.NoError(t, err)
		assert.Equal(t, 1, lookups)
	})
}

type nilContext struct{ context.Context }

func TestObserverMayReturnABrokenContext(t *testing.T) {
	for name, broken := range map[string]context.Context{
		"nil pointer": (*nilContext)(nil),
		"nil parent":  &nilContext{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _ := loggedGuard(t, resilience.Tool{Effect: resilience.ReadOnly}, resilience.Observer{
					Start: func(context.Context, resilience.CallStart) context.Context { return broken },
				})

				_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					assert.Nil(t, ctx.Value(ctxKey("no")))
					return failing(1, errBoom)(ctx)
				})

				assert.NoError(t, err)
			})
		})
	}
}

func TestObserversReceiveCopiesOfDetailsAndArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen resilience.CallEnd
		cfg := configWith(resilience.Tool{})
		cfg.Debug = true
		cfg.Observers = []resilience.Observer{{End: func(_ context.Context, e resilience.CallEnd) { seen = e }}}
		g := newGuard(t, cfg)

		r := resilience.Run(t.Context(), g, "x", failing(9, resilience.MarkPermanent(errBoom)),
			resilience.Args(map[string]any{"q": map[string]any{"n": 1}}))
		r.Err.Details["arguments"].(map[string]any)["q"].(map[string]any)["n"] = 2
		r.Err.Details["more"] = true
		require.NoError(t, g.Flush(t.Context()))
		assert.Equal(t, map[string]any{"q": map[string]any{"n": 1}}, seen.Arguments)
		assert.NotContains(t, seen.Err.Details, "more")
		assert.Equal(t, seen.Arguments, seen.Err.Details["arguments"])
	})
}

func TestFlushWaitsForTheWarningsOfTheGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		cfg := configWith(resilience.Tool{})
		cfg.Log = slog.New(handlerFunc(func(context.Context, slog.Record) error { <-release; return nil }))
		g := newGuard(t, cfg)
		g.CheckTools([]string{"y"})

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, g.Flush(ctx))
		close(release)
		flush(t, g)
	})
}

func TestObserverWithoutFunctionsIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := loggedGuard(t, resilience.Tool{Effect: resilience.ReadOnly, Timeout: time.Second}, resilience.Observer{})
		mustSucceed(t, g)
		_, err := resilience.Do(t.Context(), g, "x", failing(1, errBoom))
		require.NoError(t, err)
		_, err = resilience.Do(t.Context(), g, "x", hang(time.Hour))
		require.ErrorIs(t, err, resilience.CodeTimeout)
		trip(t, g.Breaker("another"))
		time.Sleep(2 * time.Hour)
		flush(t, g)
		assert.Empty(t, log.String())

		connectorLog, out := textLog(slog.LevelInfo)
		c := newConnector(t, newDialer(), linkConfig{Observers: []resilience.Observer{{}}, Log: connectorLog})
		require.NoError(t, c.Flush(t.Context()))
		assert.Empty(t, out.String())
	})
}

func TestObserverReceivesTheArgumentsOfTheDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := observedGuard(t, resilience.Tool{}, r.observer())
		var deep any = "end"
		for range 100 {
			deep = map[string]any{"in": deep}
		}

		result := resilience.Run(t.Context(), g, "x", failing(9, errBoom), resilience.Debug(),
			resilience.Args(map[string]any{"deep": deep}))
		flush(t, g)

		ends := received[resilience.CallEnd](&r)
		require.Len(t, ends, 1)
		assert.Equal(t, result.Err.Details["arguments"], ends[0].Arguments)
	})
}

// Names that the server doesn't have, or may not have, can't fill the labels of metrics.
func TestObserverReceivesALabelOfWhatWasCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		cfg := resilience.Config{Observers: []resilience.Observer{r.observer()}}
		g := newGuard(t, cfg)
		call := func(name string, opts ...resilience.Option) {
			_, _ = resilience.Do(t.Context(), g, name, succeed, opts...)
		}
		unknown := resilience.ForRequest(resilience.Request{Unknown: true})

		call("x", resilience.Timeout(-1)) // never called
		g.Breaker("x")
		call("x", resilience.Timeout(-1)) // only asked for
		call("x")
		call("x", resilience.Timeout(-1))
		call("x", unknown)
		flush(t, g)

		var labels []string
		for _, e := range received[resilience.CallEnd](&r) {
			labels = append(labels, e.Label)
		}
		assert.Equal(t, []string{"(others)", "(others)", "x", "x", "(others)"}, labels)
	})
}

// A panic's value may block when it is printed, which holds up no further warnings.
func TestWarningsGoOnAfterAPanicWithAValueThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		value := textError{func() { <-release }}
		g, log := loggedGuard(t, resilience.Tool{}, resilience.Observer{
			End: func(_ context.Context, e resilience.CallEnd) {
				if e.Err != nil {
					panic(value)
				}
				<-release
			},
		})
		_, _ = resilience.Do(t.Context(), g, "x", failing(9, resilience.MarkInvalid(errBoom)))
		flush(t, g)
		assertLogged(t, log, 1, `an observer panicked: further panics are not reported" panic=[unprintable]`)

		for range 2000 { // more than the queue of an observer that is slow has room for
			mustSucceed(t, g)
		}
		synctest.Wait()
		assertLogged(t, log, 1, "an observer is too slow or blocks")
		close(release)
		synctest.Wait()
	})
}
