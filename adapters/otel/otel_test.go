package otelresilience_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

var errBoom = errors.New("boom at 10.0.0.7")

// A fixture is a guard whose telemetry is kept in memory.
type fixture struct {
	*testing.T
	guard     *resilience.Guard
	telemetry *otelresilience.Telemetry
	tracer    trace.Tracer // another one, for what is around a call and in it
	spans     *tracetest.InMemoryExporter
	reader    *sdkmetric.ManualReader
}

func newFixture(t *testing.T, cfg resilience.Config, sdk ...sdktrace.TracerProviderOption) *fixture {
	t.Helper()
	f := &fixture{T: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	tp := sdktrace.NewTracerProvider(append([]sdktrace.TracerProviderOption{sdktrace.WithSyncer(f.spans)}, sdk...)...)
	f.tracer = tp.Tracer("test")
	var err error
	f.telemetry, err = otelresilience.New(otelresilience.Config{
		TracerProvider: tp,
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(f.reader)),
	})
	require.NoError(t, err)
	cfg.Observers = append(cfg.Observers, f.telemetry.Observer())
	f.guard = newGuard(t, cfg)
	return f
}

func newGuard(t *testing.T, cfg resilience.Config) *resilience.Guard {
	t.Helper()
	if cfg.Retry.Backoff == (resilience.Backoff{}) {
		cfg.Retry.Backoff = resilience.Backoff{Base: 100 * time.Millisecond, Jitter: resilience.NoJitter}
	}
	g, err := resilience.New(cfg)
	require.NoError(t, err)
	return g
}

// call makes one call and waits until all of it has been told.
func (f *fixture) call(ctx context.Context, tool string, fn func(context.Context) (int, error), opts ...resilience.Option) error {
	f.Helper()
	_, err := resilience.Do(ctx, f.guard, tool, fn, opts...)
	flush(f.T, f.guard)
	return err
}

func flush(t *testing.T, g *resilience.Guard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	require.NoError(t, g.Flush(ctx))
}

// span returns the only span of that name.
func (f *fixture) span(name string) tracetest.SpanStub {
	f.Helper()
	var found []tracetest.SpanStub
	var names []string
	for _, s := range f.spans.GetSpans() {
		names = append(names, s.Name)
		if s.Name == name {
			found = append(found, s)
		}
	}
	require.Len(f, found, 1, "%q among %q", name, names)
	return found[0]
}

type attrs = map[string]any

func attrsOf(all []attribute.KeyValue) attrs {
	out := attrs{}
	for _, kv := range all {
		out[string(kv.Key)] = kv.Value.AsInterface()
	}
	return out
}

// A point is one series of a metric: the value of a sum or a gauge, the sum of a histogram.
type point struct {
	attrs
	count uint64 // of a histogram
	value float64
}

// collect returns the series of all metrics, by name.
func (f *fixture) collect() map[string][]point {
	f.Helper()
	all, _ := f.collectAll()
	return all
}

func (f *fixture) collectAll() (map[string][]point, []metricdata.Metrics) {
	f.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(f, f.reader.Collect(context.Background(), &data))
	out := make(map[string][]point)
	if len(data.ScopeMetrics) == 0 {
		return out, nil
	}
	require.Len(f, data.ScopeMetrics, 1)
	for _, m := range data.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				out[m.Name] = append(out[m.Name], point{attrsOf(p.Attributes.ToSlice()), p.Count, p.Sum})
			}
		case metricdata.Histogram[int64]:
			for _, p := range d.DataPoints {
				out[m.Name] = append(out[m.Name], point{attrsOf(p.Attributes.ToSlice()), p.Count, float64(p.Sum)})
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				out[m.Name] = append(out[m.Name], point{attrs: attrsOf(p.Attributes.ToSlice()), value: float64(p.Value)})
			}
		case metricdata.Gauge[int64]:
			for _, p := range d.DataPoints {
				out[m.Name] = append(out[m.Name], point{attrs: attrsOf(p.Attributes.ToSlice()), value: float64(p.Value)})
			}
		default:
			f.Fatalf("%s: %T", m.Name, d)
		}
	}
	return out, data.ScopeMetrics[0].Metrics
}

func ok(context.Context) (int, error)   { return 1, nil }
func fail(context.Context) (int, error) { return 0, errBoom }

// obey runs until it is told to end.
func obey(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }

// OpenTelemetry's global providers take the place of those before them only once.
var (
	setGlobals   sync.Once
	globalSpans  = tracetest.NewInMemoryExporter()
	globalReader = sdkmetric.NewManualReader()
)

// Nothing configured is OpenTelemetry's global providers, also if they are set later.
func TestNewGlobal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, err := otelresilience.New(otelresilience.Config{})
		require.NoError(t, err)
		f := &fixture{T: t, spans: globalSpans, reader: globalReader}
		f.guard = newGuard(t, resilience.Config{Observers: []resilience.Observer{telemetry.Observer()}})
		stop, err := telemetry.Watch(f.guard)
		require.NoError(t, err)
		defer stop()
		require.NoError(t, f.call(t.Context(), "x", ok))

		setGlobals.Do(func() {
			otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(globalSpans)))
			otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(globalReader)))
		})
		globalSpans.Reset()
		require.NoError(t, f.call(t.Context(), "x", ok))
		f.span("execute_tool x")
		assert.Contains(t, f.collect(), "resilience.calls.in_flight")
	})
}

// Providers that do nothing are no reason to fail, nor to lose the client's trace.
func TestNoop(t *testing.T) {
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
		}, fromClient(traceparent))
		require.Error(t, err)
		flush(t, guard)
	})
}

type failingMeters struct{ metricnoop.MeterProvider }

func (failingMeters) Meter(string, ...metric.MeterOption) metric.Meter { return failingMeter{} }

type failingMeter struct{ metricnoop.Meter }

func (failingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errBoom
}

func TestNewFails(t *testing.T) {
	telemetry, err := otelresilience.New(otelresilience.Config{MeterProvider: failingMeters{}})
	assert.ErrorIs(t, err, errBoom)
	assert.Nil(t, telemetry)
}

// Two of them in one guard keep to their own spans.
func TestTwoTelemetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newFixture(t, resilience.Config{})
		second := newFixture(t, resilience.Config{Observers: []resilience.Observer{first.telemetry.Observer()}})
		require.Error(t, second.call(t.Context(), "x", func(context.Context) (int, error) {
			time.Sleep(2 * time.Minute)
			return 1, nil
		}))
		time.Sleep(time.Hour)
		a, b := first.span("execute_tool x"), second.span("execute_tool x")
		assert.Equal(t, a.SpanContext.SpanID(), b.Parent.SpanID(), "the later one is the inner one")
		assert.Equal(t, a.SpanContext.SpanID(), first.span("resilience.late_result").Parent.SpanID())
		assert.Equal(t, b.SpanContext.SpanID(), second.span("resilience.late_result").Parent.SpanID())
	})
}

// One that wasn't told of the start counts what it can.
func TestWithoutStart(t *testing.T) {
	f := newFixture(t, resilience.Config{})
	o := f.telemetry.Observer()
	o.Start = nil
	g := newGuard(t, resilience.Config{
		Observers: []resilience.Observer{o},
		Tools:     map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}},
	})
	ctx, around := f.tracer.Start(t.Context(), "around")
	_, err := resilience.Do(ctx, g, "x", fail, fromClient(traceparent))
	require.Error(t, err)
	flush(t, g)
	assert.Empty(t, f.spans.GetSpans(), "it must not end the span of somebody else")
	around.End()
	s := f.span("around")
	assert.Empty(t, s.Events)
	assert.Empty(t, s.Attributes)
	got := f.collect()
	assert.Len(t, got["resilience.call.duration"], 1)
	assert.Equal(t, 3.0, got["resilience.retries"][0].value)
}
