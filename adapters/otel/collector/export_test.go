package collector_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// An exporting is a guard whose telemetry goes to a collector, as users set it up.
type exporting struct {
	*testing.T
	guard  *resilience.Guard
	traces *sdktrace.TracerProvider
	meters *sdkmetric.MeterProvider
}

// export exports to the collector at url. Telemetry is exported every so often, and an export may
// take as long as patience.
func export(t *testing.T, url string, every, patience time.Duration, cfg resilience.Config) *exporting {
	t.Helper()
	spans, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(url+"/v1/traces"),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}), otlptracehttp.WithTimeout(patience))
	require.NoError(t, err)
	points, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(url+"/v1/metrics"),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}), otlpmetrichttp.WithTimeout(patience))
	require.NoError(t, err)
	x := &exporting{
		T: t,
		traces: sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans,
			sdktrace.WithMaxExportBatchSize(10), sdktrace.WithBatchTimeout(every))),
		meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(
			sdkmetric.NewPeriodicReader(points, sdkmetric.WithInterval(every)))),
	}

	telemetry, err := otelresilience.New(otelresilience.Config{TracerProvider: x.traces, MeterProvider: x.meters})
	require.NoError(t, err)
	cfg.Observers = []resilience.Observer{telemetry.Observer()}
	x.guard, err = resilience.New(cfg)
	require.NoError(t, err)
	stop, err := telemetry.Watch(x.guard)
	require.NoError(t, err)
	t.Cleanup(stop)
	return x
}

func (x *exporting) shutdown(ctx context.Context) (error, error) {
	return x.traces.Shutdown(ctx), x.meters.Shutdown(ctx)
}

func ok(context.Context) (int, error) { return 1, nil }

// calls makes n calls, and waits now and then until the observer has seen all of them.
func (x *exporting) calls(n int) {
	x.Helper()
	for i := range n {
		_, err := resilience.Do(x.Context(), x.guard, "x", ok,
			resilience.ForRequest(resilience.Request{Method: "tools/call"}))
		require.NoError(x, err)
		if i%500 == 499 || i == n-1 {
			require.NoError(x, x.guard.Flush(x.Context()))
		}
	}
}

// nothingRuns checks that no goroutine of OpenTelemetry's is left.
func nothingRuns(t *testing.T) {
	t.Helper()
	stacks := func() string {
		buf := make([]byte, 1<<20)
		return string(buf[:runtime.Stack(buf, true)])
	}
	if !assert.Eventually(t, func() bool {
		return !strings.Contains(stacks(), "go.opentelemetry.io/otel/")
	}, 30*time.Second, time.Millisecond) {
		t.Log(stacks())
	}
}

// A recorder keeps the records of a log.
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
	return append([]string(nil), r.lines...)
}

func (r *recorder) log() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

// An errorCount counts what it passes on.
type errorCount struct {
	otel.ErrorHandler
	seen chan struct{}
}

// countErrors passes OpenTelemetry's errors on to h while the test runs.
func countErrors(t *testing.T, h otel.ErrorHandler) errorCount {
	c := errorCount{h, make(chan struct{}, 10000)}
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(c)
	t.Cleanup(func() { otel.SetErrorHandler(before) })
	return c
}

func (c errorCount) Handle(err error) {
	c.ErrorHandler.Handle(err)
	select {
	case c.seen <- struct{}{}:
	default:
	}
}

func (c errorCount) wait(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-c.seen:
		case <-time.After(30 * time.Second):
			t.Fatal("OpenTelemetry reports no error")
		}
	}
}
