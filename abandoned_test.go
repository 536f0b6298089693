package resilience_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// abandonEarly makes calls whose tool takes for d, and whose callers go on without it after a second.
var abandonEarly = map[string]func(*testing.T, *resilience.Guard, time.Duration) error{
	"the option Timeout": func(t *testing.T, g *resilience.Guard, d time.Duration) error {
		_, err := resilience.Do(t.Context(), g, "x", hang(d), resilience.Timeout(time.Second))
		return err
	},
	"a deadline": func(t *testing.T, g *resilience.Guard, d time.Duration) error {
		_, err := resilience.Do(contextWithin(t, time.Second), g, "x", hang(d))
		return err
	},
	"a request that has waited": func(t *testing.T, g *resilience.Guard, d time.Duration) error {
		waited := resilience.Request{Received: time.Now().Add(time.Second - g.Timeout("x"))}
		_, err := resilience.Do(t.Context(), g, "x", hang(d), resilience.ForRequest(waited))
		return err
	},
	"a caller that leaves": func(t *testing.T, g *resilience.Guard, d time.Duration) error {
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()
		_, err := resilience.Do(ctx, g, "x", hang(d))
		return err
	},
}

func guardAgainstAbandoned(t *testing.T, tool resilience.Tool) *resilience.Guard {
	cfg := configWith(tool)
	cfg.MaxAbandoned = 3
	return newGuard(t, cfg)
}

// No client can shut a slow tool for another by going on without it.
func TestCallersThatGoOnEarlyDoNotOverloadTheToolForOthers(t *testing.T) {
	for name, call := range abandonEarly {
		runInBubble(t, name, func(t *testing.T) {
			g := guardAgainstAbandoned(t, resilience.Tool{})
			for range 3 {
				require.NotErrorIs(t, call(t, g, 30*time.Second), resilience.CodeOverloaded)
			}

			_, err := resilience.Do(t.Context(), g, "x", hang(10*time.Second))
			assert.NoError(t, err)
			assert.Equal(t, 3, g.Health()[0].Abandoned)
			assert.True(t, g.Health()[0].Available)
			time.Sleep(time.Minute)
			assert.Zero(t, g.Health()[0].Abandoned)
		})
	}
}

// But how many of such calls may be abandoned is bounded.
func TestCallsThatAllowLessTimeAreOverloadedFirst(t *testing.T) {
	for name, call := range abandonEarly {
		if name == "a caller that leaves" {
			continue // which can't be known before
		}
		runInBubble(t, name, func(t *testing.T) {
			g := guardAgainstAbandoned(t, resilience.Tool{})
			for range 3 {
				require.NotErrorIs(t, call(t, g, 30*time.Second), resilience.CodeOverloaded)
			}
			for range 10 {
				require.ErrorIs(t, call(t, g, 30*time.Second), resilience.CodeOverloaded)
			}

			time.Sleep(time.Minute)
			assert.NotErrorIs(t, call(t, g, 30*time.Second), resilience.CodeOverloaded)
			time.Sleep(time.Minute)
		})
	}
}

func TestAttemptsThatWereAbandonedEarlyCountOnceTheyAreOverdue(t *testing.T) {
	for name, call := range abandonEarly {
		for _, maximum := range []time.Duration{0, 10 * time.Minute} {
			runInBubble(t, name+", "+maximum.String(), func(t *testing.T) {
				overdue := max(maximum, time.Minute)
				g := guardAgainstAbandoned(t, resilience.Tool{MaxTimeout: maximum})
				for range 3 {
					require.NotErrorIs(t, call(t, g, 5*time.Second), resilience.CodeOverloaded)
				}
				time.Sleep(10 * time.Second) // these have returned before they were overdue

				for range 2 { // once they have returned, they don't count any more
					for range 3 {
						require.NotErrorIs(t, call(t, g, time.Hour), resilience.CodeOverloaded)
					}

					time.Sleep(overdue - 3*time.Second - 1) // the first began 3s ago
					assert.True(t, g.Health()[0].Available)
					time.Sleep(3 * time.Second)
					assert.False(t, g.Health()[0].Available)
					_, err := resilience.Do(t.Context(), g, "x", succeed)
					assert.ErrorIs(t, err, resilience.CodeOverloaded)

					time.Sleep(time.Hour)
					assert.True(t, g.Health()[0].Available)
					_, err = resilience.Do(t.Context(), g, "x", succeed)
					assert.NoError(t, err)
				}
			})
		}
	}
}

// A tool that could have had more time by reporting progress, and hasn't, is overdue at once.
func TestAttemptThatUsesUpTheTimeoutOfItsToolIsOverdueAtOnce(t *testing.T) {
	for name, attemptTimeout := range map[string]time.Duration{"one attempt": 0, "several": 2 * time.Minute} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{MaxTimeout: 10 * time.Minute})
			cfg.MaxAbandoned, cfg.AttemptTimeout = 1, attemptTimeout
			g := newGuard(t, cfg)
			_, err := resilience.Do(t.Context(), g, "x", hang(5*time.Second), resilience.Timeout(time.Second))
			require.ErrorIs(t, err, resilience.CodeTimeout)
			time.Sleep(10 * time.Second) // this one has returned, and would have been overdue in ten minutes

			_, err = resilience.Do(t.Context(), g, "x", hang(time.Hour))
			require.ErrorIs(t, err, resilience.CodeTimeout)
			_, err = resilience.Do(t.Context(), g, "x", succeed)
			assert.ErrorIs(t, err, resilience.CodeOverloaded)
			time.Sleep(time.Hour)
		})
	}
}

// The time that a person takes to answer isn't the tool's.
func TestAttemptIsNotOverdueBecauseItWasPaused(t *testing.T) {
	for name, maximum := range map[string]time.Duration{"a timeout": 0, "a maximum": 10 * time.Minute} {
		for resumed, resume := range map[string]bool{"resumed": true, "not resumed": false} {
			for attempts, attemptTimeout := range map[string]time.Duration{"one": 0, "several": 30 * time.Second} {
				runInBubble(t, name+", "+resumed+", "+attempts, func(t *testing.T) {
					cfg := configWith(resilience.Tool{MaxTimeout: maximum})
					cfg.MaxAbandoned, cfg.AttemptTimeout = 1, attemptTimeout
					g := newGuard(t, cfg)
					ctx, cancel := leavingAfter(time.Hour)(t.Context())
					defer cancel()
					_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
						end := resilience.Pause(ctx)
						<-ctx.Done()
						if resume {
							end()
						}
						return hang(2 * time.Hour)(ctx)
					})
					require.ErrorIs(t, err, resilience.CodeCanceled)

					time.Sleep(max(maximum, time.Minute) - time.Second/2)
					_, err = resilience.Do(t.Context(), g, "x", succeed)
					assert.NoError(t, err)
					time.Sleep(time.Second)
					_, err = resilience.Do(t.Context(), g, "x", succeed)
					assert.ErrorIs(t, err, resilience.CodeOverloaded)
					time.Sleep(2 * time.Hour)
				})
			}
		}
	}
}

// A call of a tool by another tool has that one's deadline, and ends with it.
func TestAttemptThatEndsWithTheCallAroundItIsAbandonedEarly(t *testing.T) {
	runInBubble(t, "", func(t *testing.T) {
		g := guardAgainstAbandoned(t, resilience.Tool{})
		for range 3 {
			_, err := resilience.WithTimeout(t.Context(), "outer", time.Second, func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "x", hang(30*time.Second))
			})
			require.ErrorIs(t, err, resilience.CodeTimeout)
		}

		_, err := resilience.Do(t.Context(), g, "x", succeed)
		assert.NoError(t, err)
		time.Sleep(time.Minute)
	})
}
