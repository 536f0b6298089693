package resilience_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
			trip(t, g.Breaker("x"))
			time.Sleep(31 * time.Second)
			over, stop := context.WithCancel(t.Context())
			defer stop()
			go func() {
				for over.Err() == nil {
					ctx, leave := leavingAfter(tc.stays)(t.Context())
					_, _ = resilience.Do(ctx, g, "x", tc.tool, resilience.WaitForTool())
					leave()
					time.Sleep(time.Millisecond) // the clock stands still while it is rejected
				}
			}()

			time.Sleep(100 * time.Millisecond)
			rejected := 0
			for {
				_, err := resilience.Do(t.Context(), g, "x", works)
				if err == nil {
					break
				}
				rejected++
				require.Less(t, rejected, 10)
				time.Sleep(resilience.AsError("", err).RetryAfter + 37*time.Millisecond)
			}
			stop()
			time.Sleep(time.Minute)
		})
	}
}

// Nor by making many at once.
func TestPromise2ClientWithManyCallsDoesNotKeepTheSlot(t *testing.T) {
	for name, tool := range map[string]toolFunc{
		"it leaves": untilDone,
		"it makes mistakes": func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, resilience.MarkInvalid(errBoom)
		},
	} {
		for _, atOnce := range []int{1, 9, 20, 100} {
			runInBubble(t, fmt.Sprint(name, " with ", atOnce), func(t *testing.T) {
				g := guardWith(t, resilience.Tool{})
				trip(t, g.Breaker("x"))
				time.Sleep(31 * time.Second)
				over, stop := context.WithCancel(t.Context())
				go func() {
					for over.Err() == nil {
						ctx, leave := context.WithCancel(over)
						for range atOnce {
							go resilience.Do(ctx, g, "x", tool)
							synctest.Wait() // they come one after the other
						}
						time.Sleep(10 * time.Second)
						leave()
						synctest.Wait() // all have returned
					}
				}()

				time.Sleep(500 * time.Millisecond)
				for rejected := 0; ; rejected++ {
					if _, err := resilience.Do(t.Context(), g, "x", succeed); err == nil {
						break
					}
					require.Less(t, rejected, 100)
					time.Sleep(time.Second)
				}
				assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
				stop()
				time.Sleep(time.Minute)
			})
		}
	}
}

// Nor does a tool that calls itself, however deeply, and loses its context.
func TestPromise2RecursionWithoutItsContextDoesNotWedge(t *testing.T) {
	ownWords := func(err error) error {
		if err != nil {
			err = errors.New("could not list a folder")
		}
		return err
	}
	for name, tc := range map[string]struct {
		says   func(error) error
		depth  int
		within int // so many probes
	}{
		"2":                         {func(err error) error { return err }, 2, 2},
		"10":                        {func(err error) error { return err }, 10, 5},
		"40":                        {func(err error) error { return err }, 40, 7},
		"2, with words of its own":  {ownWords, 2, 11},
		"5, with words of its own":  {ownWords, 5, 41},
		"20, with words of its own": {ownWords, 20, 321},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			trip(t, g.Breaker("x"))
			var walk func(depth int) error
			walk = func(depth int) error {
				_, err := resilience.Do(context.Background(), g, "x", func(context.Context) (int, error) {
					if depth == 1 {
						return 1, nil
					}
					return 1, tc.says(walk(depth - 1))
				})
				return err
			}
			probes := 0
			for err := errBoom; err != nil; probes++ {
				require.LessOrEqual(t, probes, tc.within)
				time.Sleep(31 * time.Second)
				err = walk(tc.depth)
			}
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		})
	}
}

// Other callers are rejected during any probe of a busy server, which says nothing.
func TestProbesOfABusyServerStaySingle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		trip(t, b)
		for n := range 120 { // an hour
			time.Sleep(31 * time.Second)
			var probes []func(error)
			for range 20 {
				if done, err := b.Allow(); err == nil {
					probes = append(probes, done)
				}
			}
			more := map[int]int{10: 1, 21: 2, 32: 1, 43: 4, 54: 1, 65: 2, 76: 1, 87: 8, 98: 1, 109: 2}[n] // after ten single ones
			assert.Len(t, probes, 1+more, "probe %d", n)
			for _, done := range probes {
				done(errBoom)
			}
		}
	})
}

// Nor is a backend that is dead for long asked by more and more calls.
func TestProbesOfADeadBackendAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		trip(t, b)
		most := 0
		for range 1410 { // until 1,280 single ones have failed
			time.Sleep(31 * time.Second)
			var probes []func(error)
			for range 150 {
				if done, err := b.Allow(); err == nil {
					probes = append(probes, done)
				}
			}
			most = max(most, len(probes))
			for _, done := range probes {
				done(errBoom)
			}
		}
		assert.Equal(t, 1+64, most)
	})
}

// Nor are there more and more calls because of clients that make mistakes.
func TestCallsThatLeaveTheSlotAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		trip(t, b)
		time.Sleep(31 * time.Second)
		most := 0
		for range 12 {
			var admitted []func(error)
			for range 600 {
				if done, err := b.Allow(); err == nil {
					admitted = append(admitted, done)
				}
			}
			most = max(most, len(admitted))
			for _, done := range admitted {
				done(resilience.MarkInvalid(errBoom))
			}
		}
		assert.Equal(t, 1+256, most)
	})
}

// A probe that tells nothing and stands in the way of others makes twice as many calls leave the slot, and one that
// fails half as many, down to one.
func TestHowManyCallsLeaveTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		trip(t, b)
		time.Sleep(31 * time.Second)
		nothing := resilience.MarkInvalid(errBoom)
		for n, round := range []struct {
			admitted int
			tells    error
			calls    int // 30 if zero
		}{
			{admitted: 1, tells: nothing},
			{admitted: 2, tells: nothing},
			{admitted: 3, tells: nothing},
			{admitted: 5, tells: nothing, calls: 5},
			{admitted: 5, tells: nothing},
			{admitted: 9, tells: nothing},
			{admitted: 17, tells: errBoom},
			{admitted: 9, tells: errBoom},
			{admitted: 5, tells: nothing},
			{admitted: 9, tells: errBoom},
			{admitted: 5, tells: errBoom},
			{admitted: 3, tells: errBoom},
			{admitted: 2, tells: errBoom},
			{admitted: 2, tells: errBoom},
			{admitted: 2, tells: nothing},
			{admitted: 3, tells: nothing},
		} {
			var admitted []func(error)
			for range cmp.Or(round.calls, 30) {
				if done, err := b.Allow(); err == nil {
					admitted = append(admitted, done)
				}
			}
			assert.Len(t, admitted, round.admitted, "probe %d", n)
			for _, done := range admitted {
				done(round.tells)
			}
			if round.tells == errBoom {
				time.Sleep(31 * time.Second)
			}
		}
	})
}

// That one probe stood in the way of others says nothing about the next ones.
func TestProbeThatStandsInNobodysWayMakesNoCallLeaveTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		b.Trip(time.Second)
		time.Sleep(time.Second)
		admitted := func() (all []func(error)) {
			for done, err := b.Allow(); err == nil; done, err = b.Allow() {
				all = append(all, done)
			}
			return all
		}
		for _, done := range admitted() {
			done(resilience.MarkInvalid(errBoom))
		}
		for range 10 {
			require.True(t, report(b, resilience.MarkInvalid(errBoom)))
		}
		assert.Len(t, admitted(), 2)
	})
}
