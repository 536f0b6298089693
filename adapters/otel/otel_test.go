package otelresilience_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// OpenTelemetry's global providers can replace the initial ones only once in a process.
var (
	setGlobals   sync.Once
	globalSpans  = tracetest.NewInMemoryExporter()
	globalReader = sdkmetric.NewManualReader()
)

func TestDefaultIsTheGlobalProvidersEvenIfSetLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, err := otelresilience.New(otelresilience.Config{})
		require.NoError(t, err)
		f := &fixture{T: t, spans: globalSpans, reader: globalReader}
		f.guard = newGuard(t, resilience.Config{Observers: []resilience.Observer{telemetry.Observer()}})
		stop, err := telemetry.Watch(f.guard)
		require.NoError(t, err)
		defer stop()
		require.NoError(t, f.call(t.Context(), "x", succeed))

		setGlobals.Do(func() {
			otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(globalSpans)))
			otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(globalReader)))
		})
		globalSpans.Reset()
		require.NoError(t, f.call(t.Context(), "x", succeed))
		f.span("execute_tool x")
		assert.Contains(t, f.collect(), "resilience.calls.in_flight")
	})
}

func TestNoopProvidersKeepTheClientsTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, err := otelresilience.New(otelresilience.Config{
			TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(),
		})
		require.NoError(t, err)
		guard := newGuard(t, resilience.Config{Observers: []resilience.Observer{telemetry.Observer()}})
		stop, err := telemetry.Watch(guard)
		require.NoError(t, err)
		stop()

		_, err = resilience.Do(t.Context(), guard, "x", func(ctx context.Context) (int, error) {
			assert.Equal(t, clientTrace, trace.SpanContextFromContext(ctx).TraceID().String())
			panic("p")
		}, withTrace())
		require.Error(t, err)
		flush(t, guard)
	})
}

// failingMeters can't make the instrument of this name.
type failingMeters struct {
	metricnoop.MeterProvider
	name string
}

func (p failingMeters) Meter(string, ...metric.MeterOption) metric.Meter {
	return failingMeter{name: p.name}
}

type failingMeter struct {
	metricnoop.Meter
	name string
}

func (m failingMeter) fails(name string) error {
	if name == m.name {
		return errBoom
	}
	return nil
}

func (m failingMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return metricnoop.Int64Counter{}, m.fails(name)
}

func (m failingMeter) Int64Histogram(name string, _ ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return metricnoop.Int64Histogram{}, m.fails(name)
}

func (m failingMeter) Float64Histogram(
	name string, _ ...metric.Float64HistogramOption,
) (metric.Float64Histogram, error) {
	return metricnoop.Float64Histogram{}, m.fails(name)
}

func (m failingMeter) Int64ObservableGauge(
	name string, _ ...metric.Int64ObservableGaugeOption,
) (metric.Int64ObservableGauge, error) {
	return metricnoop.Int64ObservableGauge{}, m.fails(name)
}

func (m failingMeter) Int64ObservableUpDownCounter(
	name string, _ ...metric.Int64ObservableUpDownCounterOption,
) (metric.Int64ObservableUpDownCounter, error) {
	return metricnoop.Int64ObservableUpDownCounter{}, m.fails(name)
}

func TestNewReturnsTheErrorOfEachInstrument(t *testing.T) {
	for _, name := range []string{
		"mcp.server.operation.duration", "mcp.client.operation.duration", "resilience.call.duration",
		"resilience.call.attempts", "resilience.retries", "resilience.late_result.delay", "resilience.breaker.changes",
		"resilience.breaker.state", "resilience.calls.in_flight", "resilience.calls.abandoned",
	} {
		telemetry, err := otelresilience.New(otelresilience.Config{MeterProvider: failingMeters{name: name}})
		assert.ErrorIs(t, err, errBoom, name)
		assert.Nil(t, telemetry, name)
	}
}

func TestTwoTelemetriesOfOneGuardDontMixUpSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newFixture(t, resilience.Config{})
		second := newFixture(t, resilience.Config{Observers: []resilience.Observer{first.telemetry.Observer()}})
		require.Error(t, second.call(t.Context(), "x", sleep(2*time.Minute, nil)))
		time.Sleep(time.Hour)

		outer, inner := first.span("execute_tool x"), second.span("execute_tool x")
		assert.Equal(t, outer.SpanContext.SpanID(), inner.Parent.SpanID(), "a later observer has the inner span")
		assert.Equal(t, outer.SpanContext.SpanID(), first.span("resilience.late_result").Parent.SpanID())
		assert.Equal(t, inner.SpanContext.SpanID(), second.span("resilience.late_result").Parent.SpanID())
	})
}

func TestWithoutStartMetricsAreRecorded(t *testing.T) {
	f := newFixture(t, resilience.Config{})
	o := f.telemetry.Observer()
	o.Start = nil
	cfg := toolX(resilience.Tool{Effect: resilience.ReadOnly})
	cfg.Observers = []resilience.Observer{o}
	g := newGuard(t, cfg)

	ctx, around := f.tracer.Start(t.Context(), "around")
	_, err := resilience.Do(ctx, g, "x", fail, withTrace())
	require.Error(t, err)
	flush(t, g)
	assert.Empty(t, f.spans.GetSpans(), "the span around the call isn't ours to end")

	around.End()
	s := f.span("around")
	assert.Empty(t, s.Events)
	assert.Empty(t, s.Attributes)
	got := f.collect()
	assert.Len(t, got["resilience.call.duration"], 1)
	assert.Equal(t, 3.0, got["resilience.retries"][0].value)
}

// A hangingExporter hangs until it is released.
type hangingExporter struct {
	*tracetest.InMemoryExporter
	called  chan struct{}
	release chan struct{}
}

func (e hangingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	select {
	case e.called <- struct{}{}:
	default:
	}
	<-e.release
	return e.InMemoryExporter.ExportSpans(ctx, spans)
}

// A span processor that waits for its exporter blocks the observer, but no call.
func TestSynchronousExporterThatHangsCostsOnlyTelemetry(t *testing.T) {
	var log recorder
	e := hangingExporter{tracetest.NewInMemoryExporter(), make(chan struct{}, 1), make(chan struct{})}
	f := newFixture(t, resilience.Config{Log: log.log()}, sdktrace.WithSyncer(e))
	const n = 3000
	for range n {
		_, err := resilience.Do(t.Context(), f.guard, "x", succeed)
		require.NoError(t, err)
	}
	<-e.called
	durations := f.collect()["resilience.call.duration"]
	assert.Equal(t, uint64(1), durations[0].count, "metrics are recorded before the span is exported")

	close(e.release)
	flush(t, f.guard)
	require.NoError(t, f.call(t.Context(), "x", succeed))
	exported := len(e.GetSpans())
	assert.Less(t, exported, n)
	assert.EqualValues(t, exported, f.collect()["resilience.call.duration"][0].count)

	logged := strings.Join(log.all(), "")
	assert.Equal(t, 1, strings.Count(logged, "too slow or blocks"), logged)
}
