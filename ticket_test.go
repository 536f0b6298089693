package resilience_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCallCountsOnceHoweverOftenItIsReported(t *testing.T) {
	b := resilience.NewBreaker("x", resilience.BreakerConfig{})
	done, err := b.Allow()
	require.NoError(t, err)

	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { done(errBoom) })
	}
	wg.Wait()
	assert.Equal(t, resilience.StateClosed, b.State())

	done(nil)
	for range 4 {
		report(b, errBoom)
	}
	assert.Equal(t, resilience.StateOpen, b.State(), "the first report counts, the later success doesn't")
}

func TestReportOfACallFromAnEarlierStateIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		early, err := b.Allow()
		require.NoError(t, err)
		another, err := b.Allow()
		require.NoError(t, err)
		trip(t, b)
		time.Sleep(31 * time.Second)
		probe, err := b.Allow()
		require.NoError(t, err)

		early(nil)
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		another(errBoom)
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		probe(nil)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

func TestNeutralProbeGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		trip(t, b)
		time.Sleep(31 * time.Second)

		for _, err := range []error{context.Canceled, resilience.MarkInvalid(errBoom)} {
			require.True(t, report(b, err))
			assert.Equal(t, resilience.StateHalfOpen, b.State())
		}

		require.True(t, report(b, nil))
		assert.Equal(t, resilience.StateClosed, b.State())
	})
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
			b := resilience.NewBreaker("x", tc.cfg)
			trip(t, b)
			time.Sleep(31 * time.Second)
			lost, err := b.Allow()
			require.NoError(t, err)

			time.Sleep(tc.timeout)
			require.False(t, report(b, nil), "the probe may still report")
			time.Sleep(time.Nanosecond)
			_, err = b.Allow()
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, 30*time.Second, e.RetryAfter, "it has failed, and the cooldown begins")

			time.Sleep(31 * time.Second)
			lost(errBoom) // too late
			probe, err := b.Allow()
			require.NoError(t, err)
			require.False(t, report(b, nil), "there is one slot")
			probe(nil)
			assert.Equal(t, resilience.StateClosed, b.State())
		})
	}
}

func TestOneOfManyCallsAtOnceIsTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		for range 20 {
			trip(t, b)
			time.Sleep(31 * time.Second)

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
			require.Equal(t, resilience.StateClosed, b.State())
		}
	})
}

func TestProbeIsOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		trip(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)

		r := resilience.Run(t.Context(), g, "x", failing(1, errBoom))

		assert.ErrorIs(t, r.Err, errBoom)
		assert.Equal(t, resilience.CodeToolFailed, r.Err.Code)
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
	})
}

func TestProbeMayTakeAsLongAsTheTimeoutOfItsTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: time.Hour})
		trip(t, g.Breaker("x"))
		time.Sleep(31 * time.Second)
		go func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Hour-1)) }()

		time.Sleep(50 * time.Minute)
		_, err := resilience.Do(t.Context(), g, "x", succeed)
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)

		time.Sleep(10 * time.Minute)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// A client that doesn't answer elicitations can't keep others from being the probe, however often it calls.
func TestProbeThatIsPausedGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
		b := g.Breaker("x")
		trip(t, b)
		time.Sleep(31 * time.Second)
		ctx, leave := context.WithCancel(t.Context())
		for range 40 {
			_, err := resilience.Do(contextWithin(t, time.Hour), g, "x", func(ctx context.Context) (int, error) {
				resilience.Pause(ctx)
				return untilDone(ctx)
			})
			require.ErrorIs(t, err, resilience.CodeTimeout)
			go func() {
				_, _ = resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
					resilience.Pause(ctx)
					return untilDone(ctx)
				})
			}()
			synctest.Wait()
			require.Equal(t, resilience.StateHalfOpen, b.State())
		}

		_, err := resilience.Do(t.Context(), g, "x", succeed)
		require.NoError(t, err)
		require.Equal(t, resilience.StateClosed, b.State())
		leave()
		synctest.Wait()
		assert.Equal(t, resilience.StateClosed, b.State())
		assert.Zero(t, g.Health()[0].ConsecutiveFailures)
	})
}

// A client that asks for more time, or a tool that makes progress, doesn't keep the slot for as long as that.
func TestProbeKeepsItsSlotForTheToolsOwnTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		tool resilience.Tool
		opts []resilience.Option
		kept time.Duration
	}{
		"an hour is asked for": {
			resilience.Tool{Timeout: time.Minute, MaxTimeout: time.Hour}, []resilience.Option{resilience.Timeout(time.Hour)}, 2 * time.Minute,
		},
		"progress":         {resilience.Tool{Timeout: time.Minute, MaxTimeout: time.Hour}, nil, 2 * time.Minute},
		"a longer timeout": {resilience.Tool{Timeout: 10 * time.Minute, MaxTimeout: time.Hour}, nil, 10 * time.Minute},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, tc.tool)
			trip(t, g.Breaker("x"))
			time.Sleep(time.Hour)
			begun := time.Now()
			go func() {
				_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					for ctx.Err() == nil {
						resilience.ReportProgress(ctx)
						time.Sleep(30 * time.Second)
					}
					return 0, ctx.Err()
				}, tc.opts...)
			}()
			synctest.Wait()
			for resilience.Run(t.Context(), g, "x", succeed).Err != nil {
				time.Sleep(time.Second)
			}
			assert.WithinDuration(t, begun.Add(tc.kept), time.Now(), time.Minute)
			time.Sleep(2 * time.Hour)
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		})
	}
}

// Nor has it failed by then: a tool all of whose calls take long is closed by the first that succeeds.
func TestProbeThatTakesLongCounts(t *testing.T) {
	for name, tool := range map[string]toolFunc{
		"succeeds": func(ctx context.Context) (int, error) {
			for range 20 {
				resilience.ReportProgress(ctx)
				time.Sleep(30 * time.Second)
			}
			return 1, nil
		},
		"fails": func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: time.Minute, MaxTimeout: time.Hour})
			trip(t, g.Breaker("x"))
			time.Sleep(30 * time.Second)
			for range 6 {
				go func() { _, _ = resilience.Do(t.Context(), g, "x", tool, resilience.Timeout(time.Hour)) }()
				time.Sleep(time.Minute)
			}
			time.Sleep(5 * time.Minute)
			assert.Equal(t, name == "succeeds", g.Breaker("x").State() == resilience.StateClosed)
			time.Sleep(time.Hour)
			assert.Equal(t, name == "succeeds", g.Breaker("x").State() == resilience.StateClosed)
		})
	}
}

func TestProbeOfWithBreakerThatIsPausedGivesItsSlotBack(t *testing.T) {
	for name, call := range map[string]func(context.Context, toolFunc) (int, error){
		"alone": func(ctx context.Context, fn toolFunc) (int, error) { return fn(ctx) },
		"around WithTimeout": func(ctx context.Context, fn toolFunc) (int, error) {
			return resilience.WithTimeout(ctx, "y", time.Minute, fn)
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			inner := resilience.NewBreaker("inner", resilience.BreakerConfig{})
			outer := resilience.NewBreaker("outer", resilience.BreakerConfig{})
			trip(t, inner)
			trip(t, outer)
			time.Sleep(30*time.Second + 1)
			go resilience.WithTimeout(t.Context(), "x", time.Minute, func(ctx context.Context) (int, error) {
				return resilience.WithBreaker(ctx, outer, func(ctx context.Context) (int, error) {
					return resilience.WithBreaker(ctx, inner, func(ctx context.Context) (int, error) {
						return call(ctx, pausedFor(time.Hour))
					})
				})
			})

			time.Sleep(3 * time.Minute) // more than ProbeTimeout
			for _, b := range []*resilience.Breaker{inner, outer} {
				assert.True(t, report(b, nil))
				assert.Equal(t, resilience.StateClosed, b.State())
			}
			time.Sleep(time.Hour)
		})
	}
}

// Otherwise a tool that always asks a person would keep its breaker half-open.
func TestProbeThatWasPausedCountsUnlessTheBreakerHasChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		probe, other toolFunc // the other call is made in the pause
		state        resilience.State
	}{
		"success":               {probe: succeed, state: resilience.StateClosed},
		"failure":               {probe: failing(9, errBoom), state: resilience.StateOpen},
		"timeout":               {probe: hang(time.Minute), state: resilience.StateOpen},
		"neutral":               {probe: failing(9, resilience.MarkInvalid(errBoom)), state: resilience.StateHalfOpen},
		"success after failure": {probe: succeed, other: failing(9, errBoom), state: resilience.StateOpen},
		"failure after success": {probe: failing(9, errBoom), other: succeed, state: resilience.StateClosed},
		"success after neutral": {
			probe: succeed, other: failing(9, resilience.ErrUnfinished), state: resilience.StateClosed,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
			b := g.Breaker("x")
			trip(t, b)
			time.Sleep(30*time.Second + 1)

			_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				resume := resilience.Pause(ctx)
				if tc.other != nil {
					_, _ = resilience.Do(t.Context(), g, "x", tc.other)
				}
				_, err := resilience.Do(ctx, g, "x", succeed)
				assert.NoError(t, err, "a call within the probe belongs to it, also in a pause")
				time.Sleep(3 * time.Second)
				resume()
				return tc.probe(ctx)
			})

			assert.Equal(t, tc.state, b.State())
			if tc.state == resilience.StateHalfOpen {
				done, err := b.Allow()
				require.NoError(t, err)
				assert.False(t, report(b, nil), "there is one slot")
				done(nil)
				assert.Equal(t, resilience.StateClosed, b.State())
			}
			time.Sleep(time.Hour)
		})
	}
}

// While a call is the probe, others are told to come back as late as it has taken, a second at least and a Cooldown
// at most.
func TestRejectedCallsComeBackMoreSeldomWhileAProbeLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{ProbeTimeout: time.Hour})
		trip(t, b)
		time.Sleep(30 * time.Second)
		_, err := b.Allow()
		require.NoError(t, err)

		began := time.Now()
		for _, after := range []time.Duration{0, time.Second, 10 * time.Second, 29 * time.Second, time.Minute} {
			time.Sleep(after - time.Since(began))
			_, err := b.Allow()
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, min(max(after, time.Second), 30*time.Second), e.RetryAfter)
		}
	})
}

// A probe from before a Trip doesn't count any more, whatever it ends with, so it costs no later one its slot.
func TestProbeFromBeforeATripLeavesNoSlotToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		probe := func() func(error) {
			b.Trip(time.Second)
			time.Sleep(time.Second)
			done, err := b.Allow()
			require.NoError(t, err)
			_, err = b.Allow()
			require.ErrorIs(t, err, resilience.CodeCircuitOpen)
			return done
		}
		old := probe()
		b.Trip(time.Second)
		old(context.Canceled)
		probe()
	})
}

// Nor does it save a probe that has stood in the way of others from leaving the slot to one of them.
func TestProbeFromBeforeATripEndsDuringAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		probe := func() func(error) {
			b.Trip(time.Second)
			time.Sleep(time.Second)
			done, err := b.Allow()
			require.NoError(t, err)
			return done
		}
		old, now := probe(), probe()
		require.False(t, report(b, nil), "another call")
		old(errBoom)
		now(context.Canceled)

		_, err := b.Allow()
		require.NoError(t, err)
		assert.True(t, report(b, nil), "the call before it has left the slot")
	})
}

// An operator sees what has opened the breaker, and not what came of a probe that had failed before.
func TestProbeThatHasFailedByItsTimeoutIsNoLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Cooperative: true, Timeout: time.Second})
		cfg.Breaker = resilience.BreakerConfig{ProbeTimeout: time.Second}
		g := newGuard(t, cfg)
		trip(t, g.Breaker("x"))
		time.Sleep(30 * time.Second)
		go resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
			time.Sleep(time.Minute)
			return 0, errBoom
		})
		time.Sleep(2 * time.Second)
		_, err := resilience.Do(t.Context(), g, "x", notCalled(t))
		assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
		time.Sleep(time.Minute)
		assert.Nil(t, g.Health()[0].LastError)
	})
}
