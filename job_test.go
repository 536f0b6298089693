package resilience_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed8d1e2389/resilience"
)

// A call that outlives the one around it no longer belongs to it.
func TestANestedCallAfterTheOuterOneCountsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := shareNeo4j(t)
		later := make(chan error)
		_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			background := context.WithoutCancel(ctx)
			go func() {
				time.Sleep(time.Second)
				_, err := resilience.Do(background, g, "inner", failing(9, errBoom))
				later <- err
			}()
			return 0, nil
		})
		require.NoError(t, err)
		require.ErrorIs(t, <-later, errBoom)
		assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
	})
}

// A job that succeeds in the moment in which another call opens the breaker either comes before that or is dropped. It
// doesn't close the breaker again.
func TestJobClosesNoBreakerThatHasJustOpened(t *testing.T) {
	for range 5000 {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Failures: 1, Cooldown: time.Hour})
		begun, ends := make(chan struct{}), make(chan struct{})
		wait := func(err error) toolFunc {
			return func(context.Context) (int, error) {
				begun <- struct{}{}
				<-ends
				return 0, err
			}
		}
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = resilience.WithBreaker(t.Context(), b, wait(errBoom)) })
		<-begun
		_, _ = resilience.WithBreaker(t.Context(), b, func(ctx context.Context) (int, error) {
			for range 4 {
				calls.Go(func() { _, _ = resilience.WithBreaker(context.WithoutCancel(ctx), b, wait(nil)) })
				<-begun
			}
			return 0, nil
		})
		close(ends)
		calls.Wait()
		require.Equal(t, resilience.StateOpen, b.State())
	}
}

// What a job calls after the call around it has ended belongs to the job, as long as that goes on, and passes: one
// failure counts once.
func TestACallWithinAJobThatOutlivesItsCallBelongsToTheJob(t *testing.T) {
	query := func(ctx context.Context, g *resilience.Guard) (int, error) {
		return resilience.Do(ctx, g, "query", failing(9, errBoom))
	}
	alone := func(ctx context.Context, g *resilience.Guard) (int, error) {
		return resilience.WithBreaker(ctx, g.Breaker("query"), failing(9, errBoom))
	}
	for name, within := range map[string]func(context.Context, *resilience.Guard) (int, error){"guarded": query, "alone": alone} {
		for _, trips := range []bool{false, true} {
			runInBubble(t, fmt.Sprintf("%s, trips: %t", name, trips), func(t *testing.T) {
				g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
					"start": {Breaker: "db"}, "job": {Breaker: "db"}, "query": {Breaker: "db"},
				}})
				_, err := resilience.Do(t.Context(), g, "start", func(ctx context.Context) (int, error) {
					go func() {
						_, _ = resilience.Do(context.WithoutCancel(ctx), g, "job", func(ctx context.Context) (int, error) {
							time.Sleep(5 * time.Second)
							_, err := within(ctx, g)
							assert.ErrorIs(t, err, errBoom)
							return 0, err
						})
					}()
					time.Sleep(time.Second)
					return 1, nil
				})
				require.NoError(t, err)
				if trips {
					g.Breaker("job").Trip(time.Minute)
				}
				time.Sleep(10 * time.Second)
				if !trips {
					assert.Equal(t, 1, g.Breaker("job").Failures())
				}
			})
		}
	}
}

// A job that goes on after its call has ended counts by itself, whether it has begun before that or after it. One
// that the end of the call ends doesn't, nor one whose breaker has changed since it has admitted the call.
func TestACallThatOutlivesTheOuterOneCountsByItself(t *testing.T) {
	guarded := func(ctx context.Context, g *resilience.Guard, job toolFunc) {
		_, _ = resilience.Do(ctx, g, "job", job)
	}
	alone := func(ctx context.Context, g *resilience.Guard, job toolFunc) {
		_, _ = resilience.WithBreaker(ctx, g.Breaker("job"), job)
	}
	failed, hangs := failingAfter(10*time.Second, errBoom), hang(20*time.Second)
	exits := func(ctx context.Context) (int, error) { time.Sleep(10 * time.Second); return exit(ctx) }
	for name, tc := range map[string]struct {
		call     func(context.Context, *resilience.Guard, toolFunc)
		job      toolFunc
		attached bool
		change   func(*resilience.Breaker)
		counted  int
	}{
		"a guarded job that fails":    {call: guarded, job: failed, counted: 1},
		"a guarded job that hangs":    {call: guarded, job: hangs, counted: 1},
		"a job that fails":            {call: alone, job: failed, counted: 1},
		"a job that calls Goexit":     {call: alone, job: exits, counted: 1},
		"a guarded job of the call":   {call: guarded, job: failed, attached: true},
		"a job of the call":           {call: alone, job: failed, attached: true},
		"after another change":        {call: guarded, job: failed, change: (*resilience.Breaker).Reset},
		"alone, after another change": {call: alone, job: failed, change: (*resilience.Breaker).Reset},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
				"start": {Breaker: "db"}, "job": {Breaker: "db", Timeout: 15 * time.Second},
			}})
			_, err := resilience.Do(t.Context(), g, "start", func(ctx context.Context) (int, error) {
				if !tc.attached {
					ctx = context.WithoutCancel(ctx)
				}
				go tc.call(ctx, g, tc.job)
				time.Sleep(time.Second)
				return 1, nil
			})
			require.NoError(t, err)
			if tc.change != nil {
				tc.change(g.Breaker("job"))
			}
			time.Sleep(time.Minute)
			assert.Equal(t, tc.counted, g.Breaker("job").Failures())
		})
	}
}

// startJob calls a tool that starts the job, which goes on for five seconds before what it is called for, after the
// call has ended.
func startJob(t *testing.T, g *resilience.Guard, tool string, job toolFunc) (ends <-chan error) {
	end, started := make(chan error, 1), make(chan struct{})
	_, err := resilience.Do(t.Context(), g, "start", func(ctx context.Context) (int, error) {
		go func() {
			_, err := resilience.Do(context.WithoutCancel(ctx), g, tool, func(ctx context.Context) (int, error) {
				close(started)
				time.Sleep(5 * time.Second)
				return job(ctx)
			})
			end <- err
		}()
		<-started
		return 1, nil
	})
	require.NoError(t, err)
	return end
}

// A job is in flight itself, whether or not the call that has started it is: what it calls is neither rejected by
// Close nor one call too many.
func TestWhatAJobCallsIsInTheMiddleOfItsWork(t *testing.T) {
	for _, tool := range []string{"start", "job", "another"} {
		runInBubble(t, "closed, a job of "+tool, func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"start": {Breaker: "db"}, "job": {Breaker: "db"}}})
			ends := startJob(t, g, tool, func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "query", succeed)
			})
			n, err := g.Close(t.Context())
			assert.Zero(t, n)
			assert.NoError(t, err)
			assert.NoError(t, <-ends)
		})
	}

	runInBubble(t, "as many as may be in flight", func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"start": {MaxInFlight: 1}}})
		ends := startJob(t, g, "start", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "start", succeed)
		})
		_, err := resilience.Do(t.Context(), g, "start", hang(10*time.Second))
		assert.NoError(t, err)
		assert.NoError(t, <-ends)
	})
}

// A probe that takes longer than it may has failed, but it goes on, and so does what it calls.
func TestWhatAnOverdueProbeCallsIsInTheMiddleOfItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Tools:   map[string]resilience.Tool{"x": {MaxInFlight: 1, Cooperative: true, Timeout: 10 * time.Second}},
			Breaker: resilience.BreakerConfig{Cooldown: time.Second, ProbeTimeout: time.Second},
		})
		g.Breaker("x").Trip(time.Second)
		time.Sleep(time.Second)
		go func() {
			time.Sleep(11 * time.Second) // the slot is the next call's by now
			_, _ = resilience.Do(t.Context(), g, "x", succeed)
			_, _ = g.Close(t.Context())
		}()
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			time.Sleep(20 * time.Second)
			return resilience.Do(context.WithoutCancel(ctx), g, "x", succeed)
		})
		assert.NoError(t, err)
	})
}

// What a call of WithBreaker calls that is overdue as the probe belongs to it still.
func TestWhatAnOverdueProbeOfABreakerCallsBelongsToIt(t *testing.T) {
	query := func(ctx context.Context, g *resilience.Guard) (int, error) {
		return resilience.Do(ctx, g, "x", failing(9, errBoom))
	}
	alone := func(ctx context.Context, g *resilience.Guard) (int, error) {
		return resilience.WithBreaker(ctx, g.Breaker("x"), failing(9, errBoom))
	}
	for name, within := range map[string]func(context.Context, *resilience.Guard) (int, error){"guarded": query, "alone": alone} {
		for _, later := range []time.Duration{10 * time.Second, 2 * time.Minute} { // the breaker is open, and half-open
			runInBubble(t, fmt.Sprint(name, ", ", later), func(t *testing.T) {
				g := newGuard(t, resilience.Config{Breaker: resilience.BreakerConfig{Cooldown: time.Minute, ProbeTimeout: time.Second}})
				b := g.Breaker("x")
				b.Trip(time.Second)
				time.Sleep(time.Second)
				time.AfterFunc(5*time.Second, func() { _, _ = resilience.WithBreaker(t.Context(), b, succeed) }) // rejected
				_, err := resilience.WithBreaker(t.Context(), b, func(ctx context.Context) (int, error) {
					time.Sleep(later)
					return within(ctx, g)
				})
				require.ErrorIs(t, err, errBoom)
				assert.Equal(t, 6, b.Failures(), "five of the Trip, and the probe")
			})
		}
	}
}

// A job that waits for its tool goes on when its caller has left, and what it calls then, to undo its work, belongs to
// it still.
func TestAJobThatWaitsForItsToolHoldsWhatItCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		undone := make(chan error, 1)
		undo := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			g.Breaker("start").Trip(time.Hour)
			_, err := resilience.Do(context.WithoutCancel(ctx), g, "start", succeed)
			undone <- err
			return 0, err
		}
		_, err := resilience.Do(t.Context(), g, "start", func(ctx context.Context) (int, error) {
			job, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			time.AfterFunc(time.Minute, cancel)
			go func() { _, _ = resilience.Do(job, g, "start", undo, resilience.WaitForTool()) }()
			time.Sleep(time.Second)
			return 1, nil
		})
		require.NoError(t, err)
		assert.NoError(t, <-undone)
	})
}

// Whether a job has outlived its call isn't known if a method of its caller's context takes too long. What that says
// later isn't read, which the race detector alone notices, and in real time alone.
func TestTheEndOfAJobReadsNoLateAnswer(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	var slow atomic.Bool
	var answer sync.Once
	over, ends, answered := make(chan struct{}), make(chan error), make(chan struct{})

	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		background := &calledContext{Context: context.WithoutCancel(ctx), method: "Err", call: func() {
			if slow.Load() {
				time.Sleep(300 * time.Millisecond)
				answer.Do(func() { close(answered) })
			}
		}}
		begun := make(chan struct{})
		go func() {
			_, err := resilience.Do(background, g, "x", func(context.Context) (int, error) {
				close(begun)
				<-over
				slow.Store(true)
				return 1, nil
			})
			ends <- err
		}()
		<-begun
		return 1, nil
	})

	require.NoError(t, err)
	close(over)
	require.NoError(t, <-ends)
	<-answered
}
