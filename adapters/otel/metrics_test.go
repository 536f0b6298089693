package otelresilience_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// An instrument is what the documentation says of it.
type instrument struct {
	kind, unit string
	bounds     []float64
}

var (
	secondBounds  = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}
	attemptBounds = []float64{0, 1, 2, 3, 4, 5, 10}

	documented = map[string]instrument{
		"mcp.server.operation.duration": {"histogram", "s", secondBounds},
		"mcp.client.operation.duration": {"histogram", "s", secondBounds},
		"resilience.call.duration":      {"histogram", "s", secondBounds},
		"resilience.call.attempts":      {"histogram", "{attempt}", attemptBounds},
		"resilience.retries":            {"counter", "{retry}", nil},
		"resilience.late_result.delay":  {"histogram", "s", secondBounds},
		"resilience.breaker.changes":    {"counter", "{change}", nil},
		"resilience.breaker.state":      {"gauge", "{breaker}", nil},
		"resilience.calls.in_flight":    {"updowncounter", "{call}", nil},
		"resilience.calls.abandoned":    {"updowncounter", "{call}", nil},
	}
)

func instrumentOf(m metricdata.Metrics) instrument {
	i := instrument{unit: m.Unit}
	switch d := m.Data.(type) {
	case metricdata.Histogram[float64]:
		i.kind, i.bounds = "histogram", d.DataPoints[0].Bounds
	case metricdata.Histogram[int64]:
		i.kind, i.bounds = "histogram", d.DataPoints[0].Bounds
	case metricdata.Gauge[int64]:
		i.kind = "gauge"
	case metricdata.Sum[int64]:
		i.kind = "updowncounter"
		if d.IsMonotonic {
			i.kind = "counter"
		}
	}
	return i
}

func TestInstrumentsAreAsDocumented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1}})
		stop, err := f.telemetry.Watch(f.guard)
		require.NoError(t, err)
		defer stop()

		_ = f.call(t.Context(), "a", succeed, forRequest(serverRequest))
		_ = f.call(t.Context(), "b", succeed, forRequest(resilience.RequestInfo{Method: "tools/call", Client: true}))
		_ = f.call(t.Context(), "c", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				return 0, resilience.MarkNoEffect(errBoom)
			}
			time.Sleep(2 * time.Minute)
			return 0, nil
		})
		time.Sleep(time.Hour)

		got := make(map[string]instrument)
		for _, m := range f.metrics() {
			got[m.Name] = instrumentOf(m)
			assert.NotEmpty(t, m.Description)
		}
		assert.Equal(t, documented, got)
	})
}

func TestMadeUpNamesAndCodesDontMultiplySeries(t *testing.T) {
	f := newFixture(t, resilience.Config{Breaker: resilience.BreakerConfig{MaxHold: -1}})
	unknown := resilience.ForRequest(resilience.Request{Unknown: true})
	for i := range 200 {
		failed := &resilience.Error{Code: resilience.Code(fmt.Sprint("MADE_UP_", i))}
		_, _ = resilience.Do(t.Context(), f.guard, fmt.Sprint("made up ", i), failWith(failed), unknown)
	}
	flush(t, f.guard)
	stop, err := f.telemetry.Watch(f.guard)
	require.NoError(t, err)
	defer stop()
	for name, points := range f.collect() {
		assert.LessOrEqual(t, len(points), 8, name)
	}
}

func TestCodesOfTheGuardAreOnMetrics(t *testing.T) {
	for _, code := range []resilience.Code{
		resilience.CodeConnectionLost, resilience.CodeOverloaded, resilience.CodeToolNotFound,
		resilience.CodeValidation, resilience.CodeShuttingDown, resilience.CodeRateLimited,
	} {
		f := newFixture(t, resilience.Config{})
		require.Error(t, f.call(t.Context(), "x", failWith(&resilience.Error{Code: code})))
		assert.Equal(t, string(code), f.collect()["resilience.call.duration"][0].attrs["resilience.code"])
	}
}
