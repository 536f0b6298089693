package otelresilience_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// The names, kinds, units and boundaries are what the documentation says.
func TestInstruments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1}})
		stop, err := f.telemetry.Watch(f.guard)
		require.NoError(t, err)
		defer stop()
		_ = f.call(t.Context(), "a", ok, resilience.ForRequest(request))
		_ = f.call(t.Context(), "b", ok, resilience.ForRequest(resilience.Request{Method: "tools/call", Client: true}))
		_ = f.call(t.Context(), "c", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				return 0, resilience.MarkTransient(errBoom)
			}
			time.Sleep(2 * time.Minute)
			return 0, nil
		})
		time.Sleep(time.Hour)

		seconds := []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}
		want := map[string]struct {
			kind, unit string
			bounds     []float64
		}{
			"mcp.server.operation.duration": {"histogram", "s", seconds},
			"mcp.client.operation.duration": {"histogram", "s", seconds},
			"resilience.call.duration":      {"histogram", "s", seconds},
			"resilience.call.attempts":      {"histogram", "{attempt}", []float64{0, 1, 2, 3, 4, 5, 10}},
			"resilience.retries":            {"counter", "{retry}", nil},
			"resilience.late_result.delay":  {"histogram", "s", seconds},
			"resilience.breaker.changes":    {"counter", "{change}", nil},
			"resilience.breaker.state":      {"gauge", "{breaker}", nil},
			"resilience.calls.in_flight":    {"updowncounter", "{call}", nil},
			"resilience.calls.abandoned":    {"updowncounter", "{call}", nil},
		}
		_, all := f.collectAll()
		assert.Len(t, all, len(want))
		for _, m := range all {
			w := want[m.Name]
			assert.Equal(t, w.unit, m.Unit, m.Name)
			assert.NotEmpty(t, m.Description)
			var kind string
			var bounds []float64
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				kind, bounds = "histogram", d.DataPoints[0].Bounds
			case metricdata.Histogram[int64]:
				kind, bounds = "histogram", d.DataPoints[0].Bounds
			case metricdata.Gauge[int64]:
				kind = "gauge"
			case metricdata.Sum[int64]:
				kind = "updowncounter"
				if d.IsMonotonic {
					kind = "counter"
				}
			}
			assert.Equal(t, w.kind, kind, m.Name)
			assert.Equal(t, w.bounds, bounds, m.Name)
		}
	})
}

// However many names agents make up, there are only so many series.
func TestCardinality(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}}})
		_ = f.call(t.Context(), "x", ok)
		for i := range 200 {
			_, _ = resilience.Do(t.Context(), f.guard, fmt.Sprint("made up ", i), func(context.Context) (int, error) {
				return 0, resilience.MarkPermanent(&resilience.Error{Code: resilience.Code(fmt.Sprint("MADE_UP_", i))})
			}, resilience.Shared())
			_, _ = resilience.Do(t.Context(), f.guard, fmt.Sprint("late ", i), func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, nil
			}, resilience.Shared(), resilience.Limit(1))
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
			assert.LessOrEqual(t, len(points), 6, name)
		}
	})
}

func states(points []point) map[string]string {
	out := make(map[string]string)
	for _, p := range points {
		if p.value == 1 {
			name := p.attrs["resilience.breaker.name"].(string)
			out[name] += p.attrs["resilience.breaker.state"].(string)
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

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{
			"read": {Breaker: "db"}, "write": {Breaker: "db", Timeout: time.Second}, "x": {},
		}})
		stop, err := f.telemetry.Watch(f.guard)
		require.NoError(t, err)
		got := f.collect()
		assert.Len(t, got["resilience.breaker.state"], 6, "three states of two breakers")
		assert.Equal(t, map[string]string{"db": "closed", "x": "closed"}, states(got["resilience.breaker.state"]))
		assert.Equal(t, map[string]float64{"read": 0, "write": 0, "x": 0}, byTool(got["resilience.calls.in_flight"]))

		release := make(chan struct{})
		hang := func(context.Context) (int, error) { <-release; return 1, nil }
		go func() { _, _ = resilience.Do(context.Background(), f.guard, "x", hang) }()
		for range 5 {
			_, _ = resilience.Do(t.Context(), f.guard, "write", hang)
		}
		got = f.collect()
		assert.Equal(t, map[string]string{"db": "open", "x": "closed"}, states(got["resilience.breaker.state"]))
		assert.Equal(t, map[string]float64{"read": 0, "write": 0, "x": 1}, byTool(got["resilience.calls.in_flight"]))
		assert.Equal(t, map[string]float64{"read": 0, "write": 5, "x": 0}, byTool(got["resilience.calls.abandoned"]))

		time.Sleep(31 * time.Second)
		assert.Equal(t, "half-open", states(f.collect()["resilience.breaker.state"])["db"])
		close(release)
		require.NoError(t, f.call(t.Context(), "read", ok))
		synctest.Wait()
		flush(t, f.guard)
		got = f.collect()
		assert.Equal(t, "closed", states(got["resilience.breaker.state"])["db"])
		assert.Equal(t, map[string]float64{"read": 0, "write": 0, "x": 0}, byTool(got["resilience.calls.abandoned"]))
		for _, state := range []string{"open", "half-open", "closed"} {
			assert.Contains(t, got["resilience.breaker.changes"],
				point{attrs: attrs{"resilience.breaker.name": "db", "resilience.breaker.state": state}, value: 1})
		}

		stop()
		stop()
		assert.NotContains(t, f.collect(), "resilience.calls.in_flight")
	})
}

// A breaker is observed once, however many tools share it.
func TestWatchSharedBreaker(t *testing.T) {
	f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{"a": {Breaker: "db"}, "b": {Breaker: "db"}}})
	var observe metric.Callback
	telemetry, err := otelresilience.New(otelresilience.Config{MeterProvider: deafMeters{registered: &observe}})
	require.NoError(t, err)
	_, err = telemetry.Watch(f.guard)
	require.NoError(t, err)
	var o observations
	require.NoError(t, observe(t.Context(), &o))
	assert.EqualValues(t, 2*2+3, o.n, "two of each tool, and one of each state")
}

type observations struct {
	metricnoop.Observer
	n int
}

func (o *observations) ObserveInt64(metric.Int64Observable, int64, ...metric.ObserveOption) { o.n++ }

// Guards with tools of the same names are told apart.
func TestWatchSeveral(t *testing.T) {
	f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}}})
	another := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {}}})
	for name, g := range map[string]*resilience.Guard{"a": f.guard, "b": another} {
		stop, err := f.telemetry.Watch(g, attribute.String("guard", name))
		require.NoError(t, err)
		defer stop()
	}
	got := f.collect()
	var guards []string
	for _, p := range got["resilience.calls.in_flight"] {
		guards = append(guards, p.attrs["guard"].(string))
	}
	slices.Sort(guards)
	assert.Equal(t, []string{"a", "b"}, guards)
	assert.Len(t, got["resilience.breaker.state"], 6)
}

// deafMeters call nothing back, and fail as they are told.
type deafMeters struct {
	metricnoop.MeterProvider
	register, unregister error
	registered           *metric.Callback
}

func (p deafMeters) Meter(string, ...metric.MeterOption) metric.Meter { return deafMeter{p: p} }

type deafMeter struct {
	metricnoop.Meter
	p deafMeters
}

func (m deafMeter) RegisterCallback(f metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	if m.p.registered != nil {
		*m.p.registered = f
	}
	return registration{err: m.p.unregister}, m.p.register
}

type registration struct {
	metricnoop.Registration
	err error
}

func (r registration) Unregister() error { return r.err }

func TestWatchFails(t *testing.T) {
	f := newFixture(t, resilience.Config{})
	_, err := f.telemetry.Watch(nil)
	assert.EqualError(t, err, "resilience: otel: nil *Guard")

	telemetry, err := otelresilience.New(otelresilience.Config{MeterProvider: deafMeters{register: errBoom}})
	require.NoError(t, err)
	_, err = telemetry.Watch(f.guard)
	assert.ErrorIs(t, err, errBoom)

	telemetry, err = otelresilience.New(otelresilience.Config{MeterProvider: deafMeters{unregister: errBoom}})
	require.NoError(t, err)
	stop, err := telemetry.Watch(f.guard)
	require.NoError(t, err)
	said := setErrorHandler(t)
	stop()
	assert.Equal(t, []string{errBoom.Error()}, said.all())
}

// What several goroutines do at once is counted, none of it twice.
func TestConcurrent(t *testing.T) {
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
					_, err := resilience.Do(context.Background(), f.guard, tool, ok, resilience.ForRequest(request))
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
		for c := range maps.Values(count) {
			assert.EqualValues(t, each, c)
		}
	})
}
