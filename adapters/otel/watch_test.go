package otelresilience_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
)

// breakerStates returns the states whose series is 1, by breaker.
func breakerStates(got map[string][]point) map[string]string {
	out := make(map[string]string)
	for _, p := range got["resilience.breaker.state"] {
		if p.value == 1 {
			out[p.attrs["resilience.breaker.name"].(string)] += p.attrs["resilience.breaker.state"].(string)
		}
	}
	return out
}

func byTool(points []point) map[string]float64 {
	out := make(map[string]float64)
	for _, p := range points {
		out[p.attrs["gen_ai.tool.name"].(string)] += p.value
	}
	return out
}

func TestWatchReportsHealthUntilStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{
			"read": {Breaker: "db"}, "write": {Breaker: "db", Timeout: time.Second}, "x": {},
		}})
		stop, err := f.telemetry.Watch(f.guard)
		require.NoError(t, err)
		got := f.collect()
		assert.Len(t, got["resilience.breaker.state"], 8, "four states of two breakers")
		assert.Equal(t, map[string]string{"db": "closed", "x": "closed"}, breakerStates(got))
		assert.Equal(t, map[string]float64{"read": 0, "write": 0, "x": 0}, byTool(got["resilience.calls.in_flight"]))

		release := make(chan struct{})
		hang := func(context.Context) (int, error) { <-release; return 1, nil }
		go func() { _, _ = resilience.Do(context.Background(), f.guard, "x", hang) }()
		for range 5 {
			_, _ = resilience.Do(t.Context(), f.guard, "write", hang)
		}
		got = f.collect()
		assert.Equal(t, map[string]string{"db": "open", "x": "closed"}, breakerStates(got))
		assert.Equal(t, map[string]float64{"read": 0, "write": 0, "x": 1}, byTool(got["resilience.calls.in_flight"]))
		assert.Equal(t, map[string]float64{"read": 0, "write": 5, "x": 0}, byTool(got["resilience.calls.abandoned"]))

		time.Sleep(31 * time.Second)
		assert.Equal(t, "half-open", breakerStates(f.collect())["db"])
		close(release)
		require.NoError(t, f.call(t.Context(), "read", succeed))
		synctest.Wait()
		flush(t, f.guard)
		got = f.collect()
		assert.Equal(t, "closed", breakerStates(got)["db"])
		assert.Equal(t, map[string]float64{"read": 0, "write": 0, "x": 0}, byTool(got["resilience.calls.abandoned"]))
		for state, cause := range map[string]string{"open": "calls", "half-open": "cooldown", "closed": "calls"} {
			change := attrs{
				"resilience.breaker.name": "db", "resilience.breaker.state": state, "resilience.breaker.cause": cause,
			}
			assert.Contains(t, got["resilience.breaker.changes"], point{attrs: change, value: 1})
		}

		stop()
		stop()
		assert.NotContains(t, f.collect(), "resilience.calls.in_flight")
	})
}

// An agent may make up a tool that has the name of a backend.
func TestWatchReportsTheBreakerOfToolsThatAreListed(t *testing.T) {
	for _, listed := range []string{"another", "zebra"} {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{listed: {Breaker: "db"}}})
		stop, err := f.telemetry.Watch(f.guard)
		require.NoError(t, err)
		defer stop()
		fail := func(context.Context) (int, error) { return 0, errors.New("boom") }

		for range 5 {
			require.Error(t, f.call(t.Context(), "db", fail))
		}
		assert.Equal(t, resilience.StateOpen, f.guard.Breaker("db").State())
		assert.Equal(t, map[string]string{"db": "closed"}, breakerStates(f.collect()))

		for range 5 {
			require.Error(t, f.call(t.Context(), listed, fail))
		}
		assert.Equal(t, map[string]string{"db": "open"}, breakerStates(f.collect()))
	}
}

// A recent SDK keeps 2,000 series, which are enough for 500 breakers.
func TestWatchReportsListedToolsFirst(t *testing.T) {
	f := newFixture(t, toolX(resilience.Tool{}))
	for i := range 600 {
		_ = f.call(t.Context(), fmt.Sprint("a", i), succeed)
	}
	stop, err := f.telemetry.Watch(f.guard, attribute.String("guard", "a"))
	require.NoError(t, err)
	defer stop()
	for range 3 {
		states := 0
		for _, p := range f.collect()["resilience.breaker.state"] {
			if p.attrs["resilience.breaker.name"] == "x" && p.attrs["guard"] == "a" {
				states++
			}
		}
		assert.Equal(t, 4, states)
	}
}
