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
				return 0, resilience.MarkTransient(errBoom)
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
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, toolX(resilience.Tool{}))
		_ = f.call(t.Context(), "x", succeed)
		unknown := resilience.ForRequest(resilience.Request{Unknown: true})
		for i := range 200 {
			failed := &resilience.Error{Code: resilience.Code(fmt.Sprint("MADE_UP_", i))}
			_, _ = resilience.Do(t.Context(), f.guard, fmt.Sprint("made up ", i),
				failWith(resilience.MarkPermanent(failed)), unknown)
			_, _ = resilience.Do(t.Context(), f.guard, fmt.Sprint("late ", i),
				func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, nil
				}, unknown, resilience.Timeout(1))
		}
		synctest.Wait()

		others := f.guard.Health()[0]
		require.Equal(t, "(others)", others.Tool)
		require.Zero(t, others.Abandoned)
		flush(t, f.guard)
		stop, err := f.telemetry.Watch(f.guard)
		require.NoError(t, err)
		defer stop()
		for name, points := range f.collect() {
			assert.LessOrEqual(t, len(points), 8, name)
		}
	})
}

func TestCodesOfTheGuardAreOnMetrics(t *testing.T) {
	for _, code := range []resilience.Code{
		resilience.CodeTimeout, resilience.CodeCircuitOpen, resilience.CodeConnectionLost, resilience.CodeRetryExhausted,
		resilience.CodeOverloaded, resilience.CodeToolFailed, resilience.CodeToolNotFound, resilience.CodeValidation,
		resilience.CodeCanceled, resilience.CodeShuttingDown,
	} {
		runInBubble(t, string(code), func(t *testing.T) {
			f := newFixture(t, toolX(resilience.Tool{}))
			require.Error(t, f.call(t.Context(), "x", failWith(&resilience.Error{Code: code})))
			assert.Equal(t, string(code), f.collect()["resilience.call.duration"][0].attrs["resilience.code"])
		})
	}
}

func TestConcurrentCallsAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{})
		stop, err := f.telemetry.Watch(f.guard)
		require.NoError(t, err)
		defer stop()

		const workers, each = 8, 50
		errs := make(chan error, workers)
		for w := range workers {
			go func() {
				var all []error
				for range each {
					tool := fmt.Sprint("tool ", w)
					_, err := resilience.Do(context.Background(), f.guard, tool, succeed, forRequest(serverRequest))
					all = append(all, err)
					_ = f.reader.Collect(context.Background(), &metricdata.ResourceMetrics{})
				}
				errs <- errors.Join(all...)
			}()
		}
		for range workers {
			require.NoError(t, <-errs)
		}
		flush(t, f.guard)

		assert.Len(t, f.spans.GetSpans(), workers*each)
		count := make(map[string]uint64)
		for _, p := range f.collect()["mcp.server.operation.duration"] {
			count[p.attrs["gen_ai.tool.name"].(string)] += p.count
		}
		assert.Len(t, count, workers)
		for _, n := range count {
			assert.EqualValues(t, each, n)
		}
	})
}
