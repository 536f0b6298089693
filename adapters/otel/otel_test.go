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

// failingMeters can't make the instrument of this name.
type failingMeters struct {
	metricnoop.Meter
	name string
}

func (m failingMeters) fails(name string) error {
	if name == m.name {
		return errBoom
	}
	return nil
}

func (m failingMeters) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, m.fails(name)
}
func (m failingMeters) Int64Histogram(name string, _ ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return nil, m.fails(name)
}
func (m failingMeters) Float64Histogram(
	name string, _ ...metric.Float64HistogramOption,
) (metric.Float64Histogram, error) {
	return nil, m.fails(name)
}
func (m failingMeters) Int64ObservableGauge(
	name string, _ ...metric.Int64ObservableGaugeOption,
) (metric.Int64ObservableGauge, error) {
	return nil, m.fails(name)
}
func (m failingMeters) Int64ObservableUpDownCounter(
	name string, _ ...metric.Int64ObservableUpDownCounterOption,
) (metric.Int64ObservableUpDownCounter, error) {
	return nil, m.fails(name)
}

func TestErrorOfEachInstrumentIsReturned(t *testing.T) {
	for name := range documented {
		provider := meterProvider{meter: failingMeters{name: name}}
		telemetry, err := otelresilience.New(otelresilience.Config{MeterProvider: provider})
		assert.ErrorIs(t, err, errBoom, name)
		assert.Nil(t, telemetry, name)
	}
	_, err := newFixture(t, resilience.Config{}).telemetry.Watch(nil)
	assert.EqualError(t, err, "resilience: otel: nil *Guard")
}

// A meterProvider has one meter.
type meterProvider struct {
	metricnoop.MeterProvider
	meter metric.Meter
}

func (p meterProvider) Meter(string, ...metric.MeterOption) metric.Meter { return p.meter }
