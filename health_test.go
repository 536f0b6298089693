package resilience_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"b": {Breaker: "db"}, "a": {}}})
		assert.Equal(t, `[{"tool":"a","available":true,"breaker":"a","state":"closed","consecutiveFailures":0,"inFlight":0,"abandoned":0},`+
			`{"tool":"b","available":true,"breaker":"db","state":"closed","consecutiveFailures":0,"inFlight":0,"abandoned":0}]`, jsonOf(t, g.Health()))
		go func() { _, _ = resilience.Do(t.Context(), g, "a", hang(time.Hour)) }()
		for range 5 {
			_, _ = resilience.Do(t.Context(), g, "b", failing(9, errBoom), resilience.Debug())
		}
		_, _ = resilience.Do(t.Context(), g, "c", failing(0, nil))
		synctest.Wait()
		time.Sleep(10 * time.Second)
		assert.Equal(t, `[{"tool":"a","available":true,"breaker":"a","state":"closed","consecutiveFailures":0,"inFlight":1,"abandoned":0},`+
			`{"tool":"b","available":false,"breaker":"db","state":"open","retryAfter":20,"consecutiveFailures":5,"inFlight":0,"abandoned":0,`+
			`"lastError":{"code":"TOOL_FAILED","tool":"b","message":"Tool 'b' failed","suggestion":"Try again. If it fails again, change the request or use another tool.","retryable":true}},`+
			`{"tool":"c","available":true,"breaker":"c","state":"closed","consecutiveFailures":0,"inFlight":0,"abandoned":0}]`, jsonOf(t, g.Health()))
		assert.ErrorIs(t, g.Health()[1].LastError, errBoom, "for programs")
		time.Sleep(21 * time.Second)
		_, _ = resilience.Do(t.Context(), g, "b", failing(9, errBoom))
		assert.Equal(t, 6, g.Health()[1].ConsecutiveFailures, "the failed probe too")
		time.Sleep(time.Minute)
		assert.Equal(t, 1, g.Health()[0].Abandoned)
		time.Sleep(time.Hour)
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}

func TestTimeoutOfATool(t *testing.T) {
	g := newGuard(t, resilience.Config{
		Timeouts: resilience.Timeouts{resilience.Quick: time.Second, "browser": 3 * time.Second},
		Tools: map[string]resilience.Tool{
			"a": {}, "cypher": {}, "b": {Tier: "browser"}, "c": {Timeout: 4 * time.Second, Tier: resilience.Heavy}, "impact": {Tier: resilience.Quick},
		},
	})
	for name, want := range map[string]time.Duration{
		"a": time.Second, "cypher": 120 * time.Second, "b": 3 * time.Second, "c": 4 * time.Second, "impact": time.Second,
		"explore": 120 * time.Second, "unlisted": time.Second, "": time.Second,
	} {
		assert.Equal(t, want, g.Timeout(name), name)
	}
	assert.Zero(t, g.Breaker("cypher").RetryAfter())
}

// Names come from agents: a flood of them must not fill the memory.
func TestUnlistedToolsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		for i := range 3000 {
			_, err := resilience.Do(t.Context(), g, fmt.Sprint("tool", i), failing(0, nil))
			require.NoError(t, err)
		}
		_, err := resilience.Do(t.Context(), g, strings.Repeat("x", 300), failing(0, nil))
		require.NoError(t, err)
		health := g.Health()
		assert.Len(t, health, 1025)
		assert.Equal(t, "(others)", health[0].Tool)
		assert.NotSame(t, g.Breaker("tool0"), g.Breaker("tool1"))
		assert.Same(t, g.Breaker("tool2000"), g.Breaker("tool2001"))

		r := resilience.Run(t.Context(), g, "tool2000", obey)
		assert.Equal(t, "tool2000", r.Err.Tool, "still called by its name")
		assert.Equal(t, 60*time.Second, r.Duration)
		r = resilience.Run(t.Context(), g, "cypher", obey)
		assert.Equal(t, 120*time.Second, r.Duration, "and with the timeout of its name")
	})
}

// Names that are too long don't even take what room there is.
func TestLongNamesAreNotKept(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	_, err := resilience.Do(t.Context(), g, strings.Repeat("x", 257), failing(0, nil))
	require.NoError(t, err)
	require.Len(t, g.Health(), 1)
	assert.Equal(t, "(others)", g.Health()[0].Tool)
	g.Breaker("never called")
	assert.Len(t, g.Health(), 1)
}
