package resilience_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newHalfOpen returns a breaker whose next call is the probe.
func newHalfOpen(t *testing.T, cfg resilience.BreakerConfig) *resilience.Breaker {
	t.Helper()
	b := resilience.NewBreaker("x", cfg)
	makeHalfOpen(t, b)
	return b
}

// makeHalfOpen opens a closed breaker, and waits until its next call is the probe.
func makeHalfOpen(t *testing.T, b *resilience.Breaker) {
	t.Helper()
	trip(t, b)
	time.Sleep(b.RetryAfter())
	require.Equal(t, resilience.StateHalfOpen, b.State())
}

// admit begins a call that the breaker must admit, and returns how it reports its result.
func admit(t *testing.T, b *resilience.Breaker) (done func(error)) {
	t.Helper()
	done, err := b.Allow()
	require.NoError(t, err)
	return done
}

// admitSome begins n calls, and returns how the admitted ones report their results.
func admitSome(b *resilience.Breaker, n int) (admitted []func(error)) {
	for range n {
		if done, err := b.Allow(); err == nil {
			admitted = append(admitted, done)
		}
	}
	return admitted
}

// rejection returns the error of a call that the breaker must reject.
func rejection(t *testing.T, b *resilience.Breaker) *resilience.Error {
	t.Helper()
	_, err := b.Allow()
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, resilience.CodeCircuitOpen, e.Code)
	return e
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		var b *resilience.Breaker
		b = resilience.NewBreaker("db", resilience.BreakerConfig{
			OnChange: func(name string, from, to resilience.State) {
				changes = append(changes, fmt.Sprintf("%s: %v to %v", name, from, to))
				b.State() // must not deadlock
				b.RetryAfter()
				panic("it harms nothing")
			},
		})
		assert.Equal(t, "db", b.Name())
		assert.Equal(t, resilience.StateClosed, b.State())
		assert.Zero(t, b.RetryAfter())

		play(t, b, "ffffsffff")
		assert.Equal(t, 4, b.Failures())
		play(t, b, "fw") // after exactly a cooldown
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		assert.Zero(t, b.RetryAfter())
		play(t, b, "fws")
		assert.Equal(t, resilience.StateClosed, b.State(), "one success closes it")
		assert.Zero(t, b.Failures())
		synctest.Wait()
		assert.Equal(t, []string{
			"db: closed to open", "db: open to half-open", "db: half-open to open",
			"db: open to half-open", "db: half-open to closed",
		}, changes)
	})
}

func TestRejectionSaysHowLongToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("db", resilience.BreakerConfig{})
		trip(t, b)
		time.Sleep(10 * time.Second)
		e := rejection(t, b)
		assert.EqualError(t, e,
			"CIRCUIT_OPEN: Circuit breaker open due to repeated failures. Calls are rejected for 20 more seconds.")
		assert.Equal(t, 20*time.Second, e.RetryAfter)
		assert.Equal(t, "db", e.Tool)
		time.Sleep(20*time.Second - 1)
		assert.Equal(t, time.Duration(1), rejection(t, b).RetryAfter)

		time.Sleep(time.Nanosecond)
		admit(t, b)
		e = rejection(t, b)
		assert.Equal(t, time.Second, e.RetryAfter)
		assert.Contains(t, e.Message, "Its backend is being asked; call again in 1 second.")
	})
}

func TestNewBreakerPanicsIfItsConfigIsInvalid(t *testing.T) {
	const want = "resilience: NewBreaker: Failures is -1: it must not be negative (0 is the default)\n" +
		"Cooldown is -1s: it must not be negative (0 is the default)\n" +
		"ProbeTimeout is -2s: it must not be negative (0 is the default)"

	assert.PanicsWithValue(t, want, func() {
		resilience.NewBreaker("x", resilience.BreakerConfig{
			Failures: -1, Cooldown: -time.Second, ProbeTimeout: -2 * time.Second,
		})
	})
}

func TestCallCountsOnceHoweverOftenItIsReported(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	done := admit(t, b)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { done(errBoom) })
	}
	wg.Wait()
	done(nil)
	assert.Equal(t, 1, b.Failures(), "the first report counts, the later success doesn't")
}

// Outcomes that don't tell how the backend is give the slot of a probe back.
func TestNeutralOutcomes(t *testing.T) {
	for name, err := range map[string]error{
		"a cancellation":                context.Canceled,
		"a mistake":                     resilience.MarkInvalid(errBoom),
		"neutral by a mark":             resilience.MarkNeutral(errBoom),
		"an answer that isn't final":    resilience.ErrUnfinished,
		"a rejection by a breaker":      resilience.CircuitOpenError("y", time.Second),
		"a rejection by a limit":        &resilience.Error{Code: resilience.CodeOverloaded},
		"a rejection by a closed guard": &resilience.Error{Code: resilience.CodeShuttingDown},
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 2})
			report(b, errBoom)
			report(b, err)
			assert.Equal(t, 1, b.Failures(), "it counts neither way")
			report(b, errBoom)
			require.Equal(t, resilience.StateOpen, b.State())

			time.Sleep(30 * time.Second)
			for range 3 {
				require.True(t, report(b, err))
				require.Equal(t, resilience.StateHalfOpen, b.State())
			}
			require.True(t, report(b, nil), "the next call is the probe")
			assert.Equal(t, resilience.StateClosed, b.State())
		})
	}
}

func TestProbeThatDoesNotReportFailsAfterItsTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg     resilience.BreakerConfig
		timeout time.Duration
	}{
		"default": {resilience.BreakerConfig{}, 2 * time.Minute},
		"own":     {resilience.BreakerConfig{ProbeTimeout: time.Hour}, time.Hour},
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := newHalfOpen(t, tc.cfg)
			lost := admit(t, b)
			time.Sleep(tc.timeout)
			e := rejection(t, b)
			assert.GreaterOrEqual(t, e.RetryAfter, time.Second)
			assert.LessOrEqual(t, e.RetryAfter, 30*time.Second)
			require.Equal(t, resilience.StateHalfOpen, b.State(), "the probe may still report")

			time.Sleep(time.Nanosecond)
			assert.Equal(t, 30*time.Second, rejection(t, b).RetryAfter, "it has failed, and the cooldown begins")

			time.Sleep(30 * time.Second)
			lost(errBoom) // too late
			probe := admit(t, b)
			rejection(t, b)
			probe(nil)
			assert.Equal(t, resilience.StateClosed, b.State())
		})
	}
}

func TestOneOfManyCallsAtOnceIsTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHalfOpen(t, resilience.BreakerConfig{})
		probes := make(chan func(error), 100)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if done, err := b.Allow(); err == nil {
					probes <- done
				}
			})
		}
		wg.Wait()

		require.Len(t, probes, 1)
		(<-probes)(nil)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

// A probe that tells nothing and stands in the way of another call lets one call more pass beside the next probe.
func TestProbeThatStandsInTheWayLeavesRoomForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHalfOpen(t, resilience.BreakerConfig{})
		for range 10 {
			require.True(t, report(b, context.Canceled), "it stands in no call's way")
		}
		admitted := admitSome(b, 10)
		require.Len(t, admitted, 1)
		admitted[0](context.Canceled)

		admitted = admitSome(b, 10)
		require.Len(t, admitted, 2)
		admitted[1](nil)
		require.Equal(t, resilience.StateClosed, b.State())
		admitted[0](errBoom)
		assert.Zero(t, b.Failures(), "it belongs to an earlier state")

		makeHalfOpen(t, b)
		for range 10 { // closing starts anew, and probes that fail stay single
			admitted = admitSome(b, 10)
			require.Len(t, admitted, 1)
			admitted[0](errBoom)
			time.Sleep(30 * time.Second)
		}
	})
}

// No client shuts a half-open breaker for another, by calling one time after another.
func TestPromise2ClientWhoseCallsTellNothingDoesNotKeepTheSlot(t *testing.T) {
	works := func(ctx context.Context) (int, error) {
		select {
		case <-time.After(500 * time.Millisecond):
			return 1, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	for name, tc := range map[string]struct {
		stays time.Duration
		tool  toolFunc
	}{
		"it leaves": {400 * time.Millisecond, works},
		"it makes mistakes": {time.Minute, func(ctx context.Context) (int, error) {
			_, _ = works(ctx)
			return 0, resilience.MarkInvalid(errBoom)
		}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			makeHalfOpen(t, g.Breaker("x"))
			over, stop := context.WithCancel(t.Context())
			defer stop()
			go func() {
				for over.Err() == nil {
					ctx, leave := leavingAfter(tc.stays)(t.Context())
					_, _ = resilience.Do(ctx, g, "x", tc.tool, resilience.WaitForTool())
					leave()
					time.Sleep(time.Millisecond) // a rejection takes no time
				}
			}()

			time.Sleep(100 * time.Millisecond)
			for rejected := 0; ; rejected++ {
				_, err := resilience.Do(t.Context(), g, "x", works)
				if err == nil {
					break
				}
				require.Less(t, rejected, 10)
				time.Sleep(resilience.AsError("", err).RetryAfter + 37*time.Millisecond)
			}
			stop()
			time.Sleep(time.Minute)
		})
	}
}

// Nor does a client that makes many calls at once.
func TestPromise2ClientWithManyCallsDoesNotKeepTheSlot(t *testing.T) {
	for _, atOnce := range []int{1, 9, 20} {
		runInBubble(t, fmt.Sprint(atOnce), func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			makeHalfOpen(t, g.Breaker("x"))
			over, stop := context.WithCancel(t.Context())
			go func() {
				for over.Err() == nil {
					ctx, leave := context.WithCancel(over)
					for range atOnce {
						go resilience.Do(ctx, g, "x", untilDone)
						synctest.Wait() // they come one after the other
					}
					time.Sleep(10 * time.Second)
					leave()
					synctest.Wait() // all have returned
				}
			}()

			time.Sleep(500 * time.Millisecond)
			for rejected := 0; resilience.Run(t.Context(), g, "x", succeed).Err != nil; rejected++ {
				require.Less(t, rejected, 300)
				time.Sleep(time.Second)
			}
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
			stop()
			time.Sleep(time.Minute)
		})
	}
}

func TestProbeIsOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		makeHalfOpen(t, g.Breaker("x"))

		r := resilience.Run(t.Context(), g, "x", failing(1, errBoom))
		assert.ErrorIs(t, r.Err, errBoom)
		assert.Equal(t, resilience.CodeToolFailed, r.Err.Code)
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
	})
}

// Most tools with a long timeout need it. Else their breakers would never close.
func TestProbeMayTakeAsLongAsItsTool(t *testing.T) {
	const minute = time.Minute
	for name, tc := range map[string]struct {
		tool  resilience.Tool
		takes time.Duration
	}{
		"timeout":  {resilience.Tool{Timeout: 60 * minute}, 50 * minute},
		"progress": {resilience.Tool{Timeout: minute, MaxTimeout: 60 * minute}, 10 * minute},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, tc.tool)
			makeHalfOpen(t, g.Breaker("x"))
			for range 60 {
				go resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					for end := time.Now().Add(tc.takes); time.Now().Before(end); time.Sleep(minute / 2) {
						resilience.ReportProgress(ctx)
					}
					return 1, nil
				})
				time.Sleep(minute)
			}
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
			time.Sleep(2 * tc.takes)
		})
	}
}

// A client that doesn't answer elicitations can't keep others from being the probe, however often it calls.
func TestPromise2ProbeThatIsPausedGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
		b := g.Breaker("x")
		makeHalfOpen(t, b)
		ctx, leave := context.WithCancel(t.Context())
		for range 10 {
			go resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
				resilience.Pause(ctx)
				return untilDone(ctx)
			})
			synctest.Wait()
			require.Equal(t, resilience.StateHalfOpen, b.State())
		}

		time.Sleep(time.Hour)
		mustSucceed(t, g)
		leave()
		synctest.Wait()
		assert.Equal(t, resilience.StateClosed, b.State())
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	})
}

// Otherwise a tool that always asks a person would keep its breaker half-open.
func TestProbeThatWasPausedCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		probe toolFunc
		state resilience.State
	}{
		"success": {succeed, resilience.StateClosed},
		"failure": {failing(9, errBoom), resilience.StateOpen},
		"timeout": {hang(time.Minute), resilience.StateOpen},
		"neutral": {failing(9, resilience.MarkInvalid(errBoom)), resilience.StateHalfOpen},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
			b := g.Breaker("x")
			makeHalfOpen(t, b)
			_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				resume := resilience.Pause(ctx)
				time.Sleep(3 * time.Second)
				resume()
				return tc.probe(ctx)
			})

			assert.Equal(t, tc.state, b.State())
			if tc.state == resilience.StateHalfOpen {
				assert.Len(t, admitSome(b, 2), 1, "there is one slot")
			}
			time.Sleep(time.Hour)
		})
	}
}

func TestWithBreakerReturnsWhatItsFunctionReturnsUnlessItIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		value, err := resilience.WithBreaker(t.Context(), b, succeed)
		assert.Equal(t, 1, value)
		assert.NoError(t, err)

		fail := func(context.Context) (string, error) { return "v", errBoom } // another type, the same breaker
		for range 4 {
			value, err := resilience.WithBreaker(t.Context(), b, fail)
			assert.Equal(t, "v", value)
			assert.Equal(t, errBoom, err, "unchanged")
		}
		_, err = resilience.WithBreaker(t.Context(), b, panicking(io.EOF))
		assert.ErrorIs(t, err, resilience.CodeToolFailed)
		assert.ErrorIs(t, err, io.EOF)
		_, err = resilience.WithBreaker(t.Context(), b, notCalled(t))
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
	})
}

func TestProbeOfWithBreaker(t *testing.T) {
	mistake := failing(9, resilience.MarkInvalid(errBoom))
	for name, tc := range map[string]struct {
		fn     toolFunc
		leaves bool // the caller, before the function returns
		want   resilience.State
	}{
		"succeeds":                         {succeed, false, resilience.StateClosed},
		"fails":                            {failing(9, errBoom), false, resilience.StateOpen},
		"panics":                           {panicking("p"), false, resilience.StateOpen},
		"calls Goexit":                     {exit, false, resilience.StateOpen},
		"makes a mistake":                  {mistake, false, resilience.StateHalfOpen},
		"succeeds, its caller has left":    {succeed, true, resilience.StateClosed},
		"fails, since its caller has left": {failing(9, errBoom), true, resilience.StateHalfOpen},
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := newHalfOpen(t, resilience.BreakerConfig{})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			go resilience.WithBreaker(ctx, b, func(ctx context.Context) (int, error) {
				if tc.leaves {
					leave()
				}
				return tc.fn(ctx)
			})
			synctest.Wait()
			assert.Equal(t, tc.want, b.State())
			time.Sleep(30 * time.Second)
			assert.True(t, report(b, nil))
		})
	}
}

func TestWithBreakerNeedsAFunctionABreakerAndAContext(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	_, err := resilience.WithBreaker[int](t.Context(), b, nil)
	assert.ErrorIs(t, err, resilience.CodeToolNotFound)
	canceled, _ := endedContexts(t)
	_, err = resilience.WithBreaker(canceled, b, notCalled(t))
	assert.ErrorIs(t, err, resilience.CodeCanceled)
	assert.PanicsWithValue(t, "resilience: nil *Breaker", func() {
		_, _ = resilience.WithBreaker(t.Context(), nil, notCalled(t))
	})
	assert.PanicsWithValue(t, "resilience: nil context", func() {
		_, _ = resilience.WithBreaker(noContext, b, notCalled(t))
	})
}

// The words are ours: the text of an error may hold addresses.
func TestRejectionTellsWhyTheLastCallFailed(t *testing.T) {
	unavailable := sending("GET", answering(503))
	for name, tc := range map[string]struct {
		tool toolFunc
		want string
	}{
		"refused":     {failing(9, errDial), ": the last call failed with connection refused."},
		"a status":    {unavailable, ": the last call failed with status 503."},
		"a timeout":   {untilDone, ": the last call failed with TIMEOUT."},
		"an own code": {failing(9, &resilience.Error{Code: "BUSY"}), ": the last call failed with BUSY."},
		"unknown":     {failing(9, errBoom), " due to repeated failures."},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var r recorder
			cfg := observed(reads, r.observer())
			cfg.Retry.MaxRetries = 1
			cfg.Breaker.Failures = 1
			g := newGuard(t, cfg)
			_, _ = resilience.Do(t.Context(), g, "x", tc.tool)
			g.Breaker("x").Trip(0) // as a fleet does
			for range 2 {          // a failed probe tells it, too
				_, err := resilience.Do(t.Context(), g, "x", notCalled(t))
				want := "CIRCUIT_OPEN: Circuit breaker open" + tc.want + " Calls are rejected for 30 more seconds."
				assert.EqualError(t, err, want)
				time.Sleep(30 * time.Second)
				_, _ = resilience.Do(t.Context(), g, "x", tc.tool)
			}
			flush(t, g)
			change := received[resilience.BreakerChange](&r)[0]
			assert.Contains(t, tc.want, change.Reason)
		})
	}
}
