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

func TestHealthIsTheStateOfAllTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"b": {Breaker: "db"}, "a": {}}})
		assert.Equal(t, `[{"tool":"a","available":true,"breaker":"a","state":"closed",`+
			`"consecutiveFailures":0,"inFlight":0,"abandoned":0},`+
			`{"tool":"b","available":true,"breaker":"db","state":"closed",`+
			`"consecutiveFailures":0,"inFlight":0,"abandoned":0}]`, jsonOf(t, g.Health()))

		go func() { _, _ = resilience.Do(t.Context(), g, "a", hang(time.Hour)) }()
		for range 5 {
			_, _ = resilience.Do(t.Context(), g, "b", failing(9, errBoom), resilience.Debug())
		}
		_, _ = resilience.Do(t.Context(), g, "c", failing(0, nil))
		synctest.Wait()
		time.Sleep(10 * time.Second)
		assert.Equal(t, `[{"tool":"a","available":true,"breaker":"a","state":"closed",`+
			`"consecutiveFailures":0,"inFlight":1,"abandoned":0},`+
			`{"tool":"b","available":false,"breaker":"db","state":"open",`+
			`"consecutiveFailures":5,"inFlight":0,"abandoned":0,`+
			`"lastError":{"code":"TOOL_FAILED","tool":"b","message":"Tool 'b' failed",`+
			`"suggestion":"Do not call this tool for 30 seconds; use others. `+
			`If it changes anything, check first whether it took effect.",`+
			`"retryable":true,"retryAfter":30},"lastErrorTime":"2000-01-01T00:00:00Z","retryAfter":20},`+
			`{"tool":"c","available":true,"breaker":"c","state":"closed",`+
			`"consecutiveFailures":0,"inFlight":0,"abandoned":0}]`, jsonOf(t, g.Health()))
		for i, listed := range []bool{true, true, false} {
			assert.Equal(t, listed, g.Health()[i].Listed)
		}
		assert.ErrorIs(t, g.Health()[1].LastError, errBoom, "the cause isn't in the JSON, but there for programs")

		time.Sleep(21 * time.Second)
		_, _ = resilience.Do(t.Context(), g, "b", failing(9, errBoom))
		assert.Equal(t, 6, g.Health()[1].ConsecutiveFailures, "with the failed probe")

		time.Sleep(time.Minute)
		assert.Equal(t, 1, g.Health()[0].Abandoned)
		time.Sleep(time.Hour)
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}

func TestHealthSortsKeys(t *testing.T) {
	g := guardWith(t, once)
	for i := range 26 {
		key := string(rune('a' + (i*7)%26))
		_, _ = resilience.Do(t.Context(), g, "x", failing(1, errBoom), resilience.BreakerKey(key))
	}

	var keys []string
	for _, k := range g.Health()[0].Keys {
		keys = append(keys, k.Key)
	}
	assert.Len(t, keys, 26)
	assert.IsIncreasing(t, keys)
}

func TestTimeoutIsThatOfTheToolOrItsTier(t *testing.T) {
	g := newGuard(t, resilience.Config{
		Timeouts: resilience.Timeouts{resilience.Quick: time.Second, "browser": 3 * time.Second},
		Tools: map[string]resilience.Tool{
			"quick":           {},
			"cypher":          {},
			"of another tier": {Tier: "browser"},
			"its own":         {Timeout: 4 * time.Second, Tier: resilience.Heavy},
			"impact":          {Tier: resilience.Quick},
		},
	})
	for tool, want := range map[string]time.Duration{
		"quick":           time.Second,
		"cypher":          120 * time.Second,
		"of another tier": 3 * time.Second,
		"its own":         4 * time.Second,
		"impact":          time.Second,
		"explore":         120 * time.Second,
		"unlisted":        time.Second,
		"":                time.Second,
	} {
		assert.Equal(t, want, g.Timeout(tool), tool)
	}
}

func TestLastErrorIsOneThatTheBreakerCounted(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
		"outer": {Breaker: "neo4j"}, "inner": {Breaker: "neo4j"},
	}})
	_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
		_, err := resilience.Do(ctx, g, "inner", failing(9, errBoom))
		assert.Error(t, err)
		return 0, nil
	})
	require.NoError(t, err)
	for _, h := range g.Health() {
		assert.Nil(t, h.LastError, h.Tool)
	}
}
