package resilience_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCooperativeToolRunsOnTheGoroutineOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Cooperative: true})
		before := goroutines(modulePath)

		count, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
			return goroutines(modulePath), nil
		})
		assert.NoError(t, err)
		assert.LessOrEqual(t, count, before)

		value, err := resilience.Do(t.Context(), g, "x", hang(2*time.Minute))
		assert.NoError(t, err, "late, but an answer is better than none")
		assert.Equal(t, lateValue, value)
	})
}

// A payload is large enough for it to matter who keeps it.
type payload struct{ bytes *[1 << 20]byte }

type payloadKey struct{}

// newPayload returns a payload that sends to freed once the garbage collector has found it.
func newPayload(freed chan<- struct{}) payload {
	p := payload{new([1 << 20]byte)}
	runtime.AddCleanup(p.bytes, func(int) { freed <- struct{}{} }, 0)
	return p
}

// A tool may keep its context, which keeps neither the call's value nor its function and options. A guard keeps nothing
// of a call that has returned, not even by a timer.
func TestNothingKeepsWhatACallHasUsed(t *testing.T) {
	for name, call := range map[string]func(context.Context, *resilience.Guard, payload) (kept any, err error){
		"its value": func(ctx context.Context, g *resilience.Guard, p payload) (kept any, err error) {
			_, err = resilience.Do(ctx, g, "x", func(ctx context.Context) (payload, error) {
				kept = ctx
				return p, nil
			})
			return kept, err
		},
		"its options": func(ctx context.Context, g *resilience.Guard, p payload) (kept any, err error) {
			key := func() string { return string(p.bytes[:1]) }
			_, err = resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) { kept = ctx; return 0, nil },
				resilience.ForRequest(resilience.Request{BreakerKey: key}))
			return kept, err
		},
		"its caller's context": func(ctx context.Context, g *resilience.Guard, p payload) (any, error) {
			_, err := resilience.Do(context.WithValue(ctx, payloadKey{}, p), g, "x", succeed)
			return g, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: time.Hour})
			freed := make(chan struct{}, 1)
			kept, err := call(t.Context(), g, newPayload(freed))
			require.NoError(t, err)
			assert.Eventually(t, func() bool { runtime.GC(); return len(freed) == 1 }, 2*time.Minute, time.Millisecond)
			runtime.KeepAlive(kept)
			runtime.KeepAlive(g)
		})
	}
}

// leaveEarly makes calls whose tool runs for d, and whose callers don't wait for it for more than a second.
var leaveEarly = map[string]func(*testing.T, *resilience.Guard, time.Duration) error{
	"the option Timeout": func(t *testing.T, g *resilience.Guard, d time.Duration) error {
		_, err := resilience.Do(t.Context(), g, "x", hang(d), resilience.Timeout(time.Second))
		return err
	},
	"a deadline": func(t *testing.T, g *resilience.Guard, d time.Duration) error {
		_, err := resilience.Do(contextWithin(t, time.Second), g, "x", hang(d))
		return err
	},
	"a caller that leaves": func(t *testing.T, g *resilience.Guard, d time.Duration) error {
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()
		_, err := resilience.Do(ctx, g, "x", hang(d))
		return err
	},
}

// No client can shut a tool for another by not waiting for it. A call that the client has left counts once the tool's
// own timeout has passed.
func TestCallsThatWereLeftEarlyCountOnceTheToolsTimeoutHasPassed(t *testing.T) {
	for name, call := range leaveEarly {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Timeout: time.Minute})
			cfg.MaxAbandoned = 3
			g := newGuard(t, cfg)
			try := func() error { _, err := resilience.Do(t.Context(), g, "x", succeed); return err }

			for range 3 {
				require.NotErrorIs(t, call(t, g, 30*time.Second), resilience.CodeOverloaded)
			}
			assert.Equal(t, 3, g.Health()[0].Abandoned)
			assert.NoError(t, try())
			time.Sleep(2 * time.Minute) // these have returned in time, and never count

			for range 3 {
				require.NotErrorIs(t, call(t, g, time.Hour), resilience.CodeOverloaded)
			}
			time.Sleep(50 * time.Second)
			assert.True(t, g.Health()[0].Available)
			assert.NoError(t, try())
			time.Sleep(15 * time.Second)
			assert.False(t, g.Health()[0].Available)
			assert.ErrorIs(t, try(), resilience.CodeOverloaded)
			assert.ErrorIs(t, call(t, g, 0), resilience.CodeOverloaded, "there is one counter for all callers")

			time.Sleep(time.Hour)
			assert.True(t, g.Health()[0].Available)
			assert.NoError(t, try())
		})
	}
}
