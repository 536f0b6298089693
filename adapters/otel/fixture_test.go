package otelresilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A fixture is a guard whose telemetry is kept in memory.
type fixture struct {
	*testing.T
	guard     *resilience.Guard
	telemetry *otelresilience.Telemetry
	tracer    trace.Tracer // makes the spans around and inside of calls
	spans     *tracetest.InMemoryExporter
	reader    *sdkmetric.ManualReader
}

func newFixture(t *testing.T, cfg resilience.Config, sdk ...sdktrace.TracerProviderOption) *fixture {
	t.Helper()
	f := &fixture{T: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	sdk = append([]sdktrace.TracerProviderOption{sdktrace.WithSyncer(f.spans)}, sdk...)
	provider := sdktrace.NewTracerProvider(sdk...)
	f.tracer = provider.Tracer("test")

	var err error
	f.telemetry, err = otelresilience.New(otelresilience.Config{
		TracerProvider: provider,
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(f.reader)),
	})
	require.NoError(t, err)
	cfg.Observers = append(cfg.Observers, f.telemetry.Observer())
	f.guard = newGuard(t, cfg)
	return f
}

// newGuard returns a guard whose delays double from 100ms, unless cfg says otherwise.
func newGuard(t *testing.T, cfg resilience.Config) *resilience.Guard {
	t.Helper()
	if cfg.Retry.Backoff == (resilience.Backoff{}) {
		cfg.Retry.Backoff = resilience.Backoff{Base: 100 * time.Millisecond, Jitter: resilience.NoJitter}
	}
	g, err := resilience.New(cfg)
	require.NoError(t, err)
	return g
}

// toolX returns a configuration that lists tool x.
func toolX(x resilience.Tool) resilience.Config {
	return resilience.Config{Tools: map[string]resilience.Tool{"x": x}}
}

// runInBubble runs a subtest whose clock is that of a synctest bubble.
func runInBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A toolFunc is the function of a tool.
type toolFunc = func(context.Context) (int, error)

// call makes one call and waits until the observers have received its events.
func (f *fixture) call(ctx context.Context, tool string, fn toolFunc, opts ...resilience.Option) error {
	f.Helper()
	_, err := resilience.Do(ctx, f.guard, tool, fn, opts...)
	flush(f.T, f.guard)
	return err
}

func flush(t *testing.T, g *resilience.Guard) {
	t.Helper()
	require.NoError(t, g.Flush(context.Background()))
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

// checkNotInSpans checks that no span contains the text of a cause.
func (f *fixture) checkNotInSpans(secret string) {
	f.Helper()
	for _, s := range f.spans.GetSpans() {
		assert.NotContains(f, fmt.Sprintf("%+v %+v %+v", s.Status, s.Attributes, s.Events), secret)
	}
}

type attrs = map[string]any

func attrsOf(all []attribute.KeyValue) attrs {
	out := attrs{}
	for _, kv := range all {
		out[string(kv.Key)] = kv.Value.AsInterface()
	}
	return out
}

// A point is one series of a metric.
type point struct {
	attrs
	count uint64  // of a histogram
	value float64 // of a sum or a gauge, or the sum of a histogram
}

// collect returns the series of all metrics, by name.
func (f *fixture) collect() map[string][]point {
	f.Helper()
	out := make(map[string][]point)
	for _, m := range f.metrics() {
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			out[m.Name] = histogramPoints(d)
		case metricdata.Histogram[int64]:
			out[m.Name] = histogramPoints(d)
		case metricdata.Sum[int64]:
			out[m.Name] = points(d.DataPoints)
		case metricdata.Gauge[int64]:
			out[m.Name] = points(d.DataPoints)
		default:
			f.Fatalf("%s: %T", m.Name, d)
		}
	}
	return out
}

func histogramPoints[N int64 | float64](d metricdata.Histogram[N]) (out []point) {
	for _, p := range d.DataPoints {
		out = append(out, point{attrsOf(p.Attributes.ToSlice()), p.Count, float64(p.Sum)})
	}
	return out
}

func points(all []metricdata.DataPoint[int64]) (out []point) {
	for _, p := range all {
		out = append(out, point{attrs: attrsOf(p.Attributes.ToSlice()), value: float64(p.Value)})
	}
	return out
}

// metrics returns all metrics, which must have one scope.
func (f *fixture) metrics() []metricdata.Metrics {
	f.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(f, f.reader.Collect(context.Background(), &data))
	if len(data.ScopeMetrics) == 0 {
		return nil
	}
	require.Len(f, data.ScopeMetrics, 1)
	return data.ScopeMetrics[0].Metrics
}

var errBoom = errors.New("boom at 10.0.0.7")

func succeed(context.Context) (int, error) { return 1, nil }
func fail(context.Context) (int, error)    { return 0, errBoom }

// failWith returns a tool that fails with err.
func failWith(err error) toolFunc {
	return func(context.Context) (int, error) { return 0, err }
}

// sleep returns a tool that sleeps, whatever becomes of its context, and then fails with err.
func sleep(d time.Duration, err error) toolFunc {
	return func(context.Context) (int, error) {
		time.Sleep(d)
		return 0, err
	}
}

// untilCanceled runs until its context ends.
func untilCanceled(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

var serverRequest = resilience.RequestInfo{Method: "tools/call", Session: "s1", Protocol: "2025-11-25"}

// forRequest returns the option of a call of a tool that the server knows.
func forRequest(info resilience.RequestInfo) resilience.Option {
	return resilience.ForRequest(resilience.Request{RequestInfo: info})
}

func withMeta(meta map[string]any) resilience.Option {
	return forRequest(resilience.RequestInfo{Method: "tools/call", Meta: meta})
}

// These identify the client's trace and the span in it that called us.
const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
	traceparent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// withTrace is the option of a call whose client has sent its trace.
func withTrace() resilience.Option { return withMeta(map[string]any{"traceparent": traceparent}) }

// A recorder keeps the lines that a slog.TextHandler writes.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(b))
	return len(b), nil
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *recorder) log() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }
