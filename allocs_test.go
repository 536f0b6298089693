package resilience_test

import (
	"context"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// What a call costs in allocations is asserted, as time can't be. A tool that asks for
// ctx.Done() pays one of them.
func TestAllocations(t *testing.T) {
	looks := func(ctx context.Context) (string, error) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		default:
			return "found", nil
		}
	}
	cfg := resilience.Config{Tools: map[string]resilience.Tool{"x": {}, "cooperative": {Cooperative: true}, "open": {}}}
	g := newGuard(t, cfg)
	open(t, g.Breaker("open"))
	session, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		tool string
		most float64
	}{
		{"cooperative", context.Background(), "cooperative", 5},
		{"enforced", context.Background(), "x", 7},
		{"enforced, in a session", session, "x", 7},
		{"rejected", context.Background(), "open", 2},
	} {
		got := testing.AllocsPerRun(200, func() { _, _ = resilience.Do(tc.ctx, g, tc.tool, looks) })
		assert.LessOrEqual(t, got, tc.most, tc.name)
	}
}
