package collector_test

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
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
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// An exportingGuard is a guard whose telemetry goes to a collector, set up as users do it.
type exportingGuard struct {
	*testing.T
	guard  *resilience.Guard
	traces *sdktrace.TracerProvider
	meters *sdkmetric.MeterProvider
}

// newExportingGuard returns a guard that exports to the collector at url, once per interval and
// with a timeout for each export.
func newExportingGuard(
	t *testing.T, url string, interval, timeout time.Duration, cfg resilience.Config,
) *exportingGuard {
	t.Helper()
	spans, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(url+"/v1/traces"),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}), otlptracehttp.WithTimeout(timeout))
	require.NoError(t, err)
	points, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(url+"/v1/metrics"),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}), otlpmetrichttp.WithTimeout(timeout))
	require.NoError(t, err)
	g := &exportingGuard{
		T: t,
		traces: sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans,
			sdktrace.WithMaxExportBatchSize(10), sdktrace.WithBatchTimeout(interval))),
		meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(
			sdkmetric.NewPeriodicReader(points, sdkmetric.WithInterval(interval)))),
	}

	telemetry, err := otelresilience.New(otelresilience.Config{TracerProvider: g.traces, MeterProvider: g.meters})
	require.NoError(t, err)
	cfg.Observers = []resilience.Observer{telemetry.Observer()}
	g.guard, err = resilience.New(cfg)
	require.NoError(t, err)
	stop, err := telemetry.Watch(g.guard)
	require.NoError(t, err)
	t.Cleanup(stop)
	return g
}

// shutdown shuts both providers down and returns their errors.
func (g *exportingGuard) shutdown(ctx context.Context) (traces, meters error) {
	return g.traces.Shutdown(ctx), g.meters.Shutdown(ctx)
}

func succeed(context.Context) (int, error) { return 1, nil }

// call makes n calls. After every 500 of them it waits until the observer has received all. The
// calls are in a bubble, so that a slow machine can't exceed the time that they wait for
// Observer.Start; the exporters are outside.
func (g *exportingGuard) call(n int) {
	g.Helper()
	request := resilience.ForRequest(resilience.Request{
		RequestInfo: resilience.RequestInfo{Method: "tools/call"},
	})
	synctest.Test(g.T, func(t *testing.T) {
		for i := range n {
			_, err := resilience.Do(t.Context(), g.guard, "x", succeed, request)
			require.NoError(t, err)
			if i%500 == 499 || i == n-1 {
				require.NoError(t, g.guard.Flush(t.Context()))
			}
		}
	})
}

// checkNoGoroutines checks that OpenTelemetry's goroutines end.
func checkNoGoroutines(t *testing.T) {
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

// A recorder keeps the lines of a log.
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

// An errorCounter passes errors on and counts them.
type errorCounter struct {
	otel.ErrorHandler
	seen chan struct{}
}

// countErrors makes h OpenTelemetry's error handler until the test ends.
func countErrors(t *testing.T, h otel.ErrorHandler) errorCounter {
	c := errorCounter{h, make(chan struct{}, 10000)}
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(c)
	t.Cleanup(func() { otel.SetErrorHandler(before) })
	return c
}

func (c errorCounter) Handle(err error) {
	c.ErrorHandler.Handle(err)
	select {
	case c.seen <- struct{}{}:
	default:
	}
}

// wait waits until n errors have been handled.
func (c errorCounter) wait(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-c.seen:
		case <-time.After(30 * time.Second):
			t.Fatal("OpenTelemetry reports no error")
		}
	}
}
