package resilience_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestToolIsOverloadedWhileTooManyAbandonedCallsStillRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			MaxAbandoned: 3,
			Breaker:      resilience.BreakerConfig{Failures: 100},
		})
		for i := range 3 {
			_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
			require.ErrorIs(t, err, resilience.CodeTimeout, "call %d", i)
		}

		start := time.Now()
		r := resilience.Run(t.Context(), g, "x", hang(time.Hour))
		assert.ErrorIs(t, r.Err, resilience.CodeOverloaded)
		assert.Equal(t, "Too many earlier calls of tool 'x' still run", r.Err.Message)
		assert.True(t, r.Err.Retryable)
		assert.Zero(t, r.Attempts)
		assert.Equal(t, start, time.Now())
		assert.Equal(t, 3, g.Health()[0].Abandoned)
		assert.Equal(t, 3, g.Health()[0].ConsecutiveFailures, "an overload isn't counted")
		assert.Zero(t, g.Health()[0].InFlight)

		_, err := resilience.Do(t.Context(), g, "y", succeed)
		assert.NoError(t, err, "each tool has its own")

		time.Sleep(time.Hour)
		_, err = resilience.Do(t.Context(), g, "x", succeed)
		assert.NoError(t, err, "the abandoned calls have returned")
		assert.Zero(t, g.Health()[0].Abandoned)
	})
}

func TestRetriesOfAnOverloadedToolAreNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Tools:          map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}},
			Breaker:        resilience.BreakerConfig{Failures: 100},
			MaxAbandoned:   2,
			AttemptTimeout: time.Second,
		})

		r := resilience.Run(t.Context(), g, "x", hang(time.Hour))

		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 2, r.Attempts)
		time.Sleep(time.Hour)
	})
}

func TestProbeOfAnOverloadedToolGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Timeout: time.Second})
		cfg.MaxAbandoned = 1
		cfg.Breaker = resilience.BreakerConfig{Failures: 1, Cooldown: time.Second}
		g := newGuard(t, cfg)
		_, err := resilience.Do(t.Context(), g, "x", hang(time.Minute))
		require.ErrorIs(t, err, resilience.CodeTimeout)

		time.Sleep(2 * time.Second)
		_, err = resilience.Do(t.Context(), g, "x", succeed)
		require.ErrorIs(t, err, resilience.CodeOverloaded)

		time.Sleep(time.Minute)
		_, err = resilience.Do(t.Context(), g, "x", succeed)
		assert.NoError(t, err)
	})
}

func TestAMadeUpNameDoesNotOpenTheBreakerThatToolsShare(t *testing.T) {
	g := shareNeo4j(t)
	for range 10 {
		_, err := resilience.Do(t.Context(), g, "neo4j", failing(9, errBoom))
		require.Error(t, err)
	}
	assert.Equal(t, resilience.StateClosed, g.Breaker("inner").State())
}

// An agent may make up a name of any size. It would reach logs, traces and other agents.
func TestLongNameIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		huge := strings.Repeat("ä", 4<<20)
		listed := strings.Repeat("l", 300)
		cfg := observed(resilience.Tool{}, r.observer())
		cfg.Tools[listed] = resilience.Tool{}
		g := newGuard(t, cfg)

		request := resilience.ForRequest(resilience.Request{
			RequestInfo: resilience.RequestInfo{Method: huge, Session: huge, Protocol: huge},
		})
		_, err := resilience.Do(t.Context(), g, huge, failing(9, errBoom), request)
		_, _ = resilience.Do(t.Context(), g, listed, failing(9, errBoom))
		flush(t, g)

		cut := strings.Repeat("ä", 128) + "…"
		e := err.(*resilience.Error)
		assert.Equal(t, "Tool '"+cut+"' failed", e.Message)
		assert.Equal(t, cut, e.Tool)
		starts := received[resilience.CallStart](&r)
		assert.Equal(t, resilience.RequestInfo{Method: cut, Session: cut, Protocol: cut}, starts[0].Request)
		assert.Equal(t, []string{cut, listed}, []string{starts[0].Tool, starts[1].Tool})
		assert.Equal(t, "(others)", received[resilience.CallEnd](&r)[0].Label)
	})
}

func TestNameOfTheLongestLengthIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := newGuard(t, observed(resilience.Tool{}, r.observer()))
		longest := strings.Repeat("l", 256)
		info := resilience.RequestInfo{Method: longest, Session: longest, Protocol: longest}
		request := resilience.ForRequest(resilience.Request{RequestInfo: info})
		_, err := resilience.Do(t.Context(), g, longest, succeed, request)
		require.NoError(t, err)
		flush(t, g)

		start := received[resilience.CallStart](&r)[0]
		assert.Equal(t, longest, start.Tool)
		assert.Equal(t, info, start.Request)
		_, ok := healthOf(g, longest)
		assert.True(t, ok, "it has a state of its own")
		assert.NotContains(t, string(g.AgentHealth()), "(others)")

		_, err = resilience.Do(t.Context(), g, longest+"l", succeed)
		require.NoError(t, err)
		assert.Contains(t, string(g.AgentHealth()), "(others)", "a longer one shares its state with others")
	})
}

// An agent could make up a name that is cut to the name of a listed tool, which it would seem to be.
func TestLongNameIsNotCutToThatOfAListedTool(t *testing.T) {
	listed := strings.Repeat("l", 256) + "…"
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{listed: {}}})

	_, err := resilience.Do(t.Context(), g, strings.Repeat("l", 300), failing(9, errBoom))
	assert.Equal(t, "(others)", err.(*resilience.Error).Tool)
	_, err = resilience.Do(t.Context(), g, listed, failing(9, errBoom))
	assert.Equal(t, listed, err.(*resilience.Error).Tool)
}
