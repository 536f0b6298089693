package resilience_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const leaseCooldown = 10 * time.Second

// openWithLease returns a guard whose breaker "search" has just been opened for a leaseCooldown.
func openWithLease(t *testing.T, cfg resilience.BreakerConfig) *resilience.Guard {
	cfg.Cooldown = leaseCooldown
	g := newGuard(t, resilience.Config{Breaker: cfg, Retry: resilience.Retry{MaxRetries: -1}})
	g.Breaker("search").Trip(0)
	return g
}

func TestLeaseDecidesWhetherACallIsTheProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		lease  func(string) bool
		admits bool
	}{
		"none":   {nil, true},
		"yes":    {func(string) bool { return true }, true},
		"no":     {func(string) bool { return false }, false},
		"panics": {func(string) bool { panic("no answer") }, true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := openWithLease(t, resilience.BreakerConfig{Lease: tc.lease})
			time.Sleep(leaseCooldown)
			_, err := resilience.Do(t.Context(), g, "search", succeed)
			if tc.admits {
				require.NoError(t, err)
				require.Equal(t, resilience.StateClosed, g.Breaker("search").State())
				return
			}
			require.ErrorIs(t, err, resilience.CodeCircuitOpen)
			require.Equal(t, time.Second, err.(*resilience.Error).RetryAfter)
		})
	}
}

func TestLeasePutsProbeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, probes := 0, 0
		g := openWithLease(t, resilience.BreakerConfig{
			Lease: func(string) bool { asked++; return asked > 3 },
			Probe: func(context.Context) error { probes++; return nil },
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 4, asked)
		assert.Equal(t, 1, probes)
		assert.Equal(t, resilience.StateClosed, g.Breaker("search").State())
	})
}

func TestCallEndHasItsBreaker(t *testing.T) {
	var got []string
	g := newGuard(t, resilience.Config{
		Tools: map[string]resilience.Tool{"search": {Breaker: "index"}},
		Observers: []resilience.Observer{{End: func(_ context.Context, e resilience.CallEnd) {
			got = append(got, e.Breaker)
		}}},
	})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, call := range []struct {
		ctx  context.Context
		tool string
		opts []resilience.Option
	}{
		{ctx: t.Context(), tool: "search"},
		{ctx: t.Context(), tool: "search", opts: []resilience.Option{resilience.BreakerKey("eu")}},
		{ctx: t.Context(), tool: "unlisted"},
		{ctx: canceled, tool: "search"},
	} {
		_, _ = resilience.Do(call.ctx, g, call.tool, succeed, call.opts...)
	}
	g.Breaker("search").Isolate("maintenance")
	_, _ = resilience.Do(t.Context(), g, "search", succeed)

	require.NoError(t, g.Flush(t.Context()))
	assert.Equal(t, []string{"index", "index/eu", "unlisted", "", "index"}, got)
}
