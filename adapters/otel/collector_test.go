package otelresilience_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A collector receives OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*traces.Span
	metrics map[string]*metrics.Metric // the last of each
}

func newCollector(t *testing.T) *collector {
	c := &collector{metrics: make(map[string]*metrics.Metric)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var req collecttraces.ExportTraceServiceRequest
		if !read(w, r, &req) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range req.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		var req collectmetrics.ExportMetricsServiceRequest
		if !read(w, r, &req) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range req.ResourceMetrics {
			for _, scope := range resource.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics[m.Name] = m
				}
			}
		}
	})
	c.Server = httptest.NewServer(mux)
	t.Cleanup(c.Close)
	return c
}

func read(w http.ResponseWriter, r *http.Request, into proto.Message) bool {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, into)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	return true
}

func fromProto(all []*common.KeyValue) attrs {
	out := attrs{}
	for _, kv := range all {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			out[kv.Key] = v.DoubleValue
		case *common.AnyValue_BoolValue:
			out[kv.Key] = v.BoolValue
		}
	}
	return out
}

// An exporting is a guard whose telemetry goes to a collector, as users set it up.
type exporting struct {
	*testing.T
	guard  *resilience.Guard
	traces *sdktrace.TracerProvider
	meters *sdkmetric.MeterProvider
}

// every is how often something is exported, patience how long that may take.
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
	x.guard = newGuard(t, cfg)
	stop, err := telemetry.Watch(x.guard)
	require.NoError(t, err)
	t.Cleanup(stop)
	return x
}

func (x *exporting) shutdown(ctx context.Context) (error, error) {
	return x.traces.Shutdown(ctx), x.meters.Shutdown(ctx)
}

// calls makes n of them, and waits now and then until all has been told.
func (x *exporting) calls(n int) {
	x.Helper()
	for i := range n {
		_, err := resilience.Do(x.Context(), x.guard, "x", ok, forRequest(request))
		require.NoError(x, err)
		if i%500 == 499 || i == n-1 {
			flush(x.T, x.guard)
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

func TestCollector(t *testing.T) {
	c := newCollector(t)
	said := setErrorHandler(t)
	x := export(t, c.URL, time.Hour, time.Minute, resilience.Config{Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}}})
	_, err := resilience.Do(t.Context(), x.guard, "x", func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 0, context.DeadlineExceeded
		}
		return 0, resilience.MarkPermanent(&resilience.Error{Code: resilience.CodeConnectionLost, Message: "gone \xff", RetryAfter: time.Second})
	}, resilience.ForRequest(resilience.Request{Known: true, RequestInfo: resilience.RequestInfo{
		Method: "tools/call", Session: "s\xff", Meta: map[string]any{"traceparent": traceparent},
	}}))
	require.ErrorIs(t, err, resilience.CodeConnectionLost)
	_, err = resilience.Do(t.Context(), x.guard, "made \xff up", ok)
	require.NoError(t, err)
	flush(t, x.guard)
	errTraces, errMeters := x.shutdown(t.Context())
	require.NoError(t, errTraces)
	require.NoError(t, errMeters)
	assert.Empty(t, said.all())

	require.Len(t, c.spans, 2)
	s := c.spans[0]
	assert.Equal(t, "tools/call x", s.Name)
	assert.Equal(t, traces.Span_SPAN_KIND_SERVER, s.Kind)
	assert.Equal(t, clientTrace, hex(s.TraceId))
	assert.Equal(t, clientSpan, hex(s.ParentSpanId))
	assert.Equal(t, traces.Status_STATUS_CODE_ERROR, s.Status.Code)
	assert.Equal(t, "gone \uFFFD", s.Status.Message)
	assert.Equal(t, attrs{
		"mcp.method.name": "tools/call", "mcp.session.id": "s\uFFFD",
		"gen_ai.tool.name": "x", "gen_ai.operation.name": "execute_tool", "error.type": "tool_error",
		"resilience.code": "CONNECTION_LOST", "resilience.attempts": int64(2), "resilience.limit": 60.0, "resilience.retry_after": 1.0,
	}, fromProto(s.Attributes))
	require.Len(t, s.Events, 1)
	assert.Equal(t, "resilience.retry", s.Events[0].Name)
	assert.Equal(t, attrs{"resilience.attempt": int64(1), "resilience.delay": 0.1, "error.type": "TIMEOUT"}, fromProto(s.Events[0].Attributes))
	assert.Equal(t, "execute_tool made \uFFFD up", c.spans[1].Name)

	d := c.metrics["mcp.server.operation.duration"].GetHistogram().GetDataPoints()
	require.Len(t, d, 1)
	assert.EqualValues(t, 1, d[0].Count)
	assert.Equal(t, attrs{
		"mcp.method.name": "tools/call", "gen_ai.tool.name": "x", "gen_ai.operation.name": "execute_tool",
		"error.type": "tool_error", "resilience.code": "CONNECTION_LOST",
	}, fromProto(d[0].Attributes))
	require.Len(t, d[0].Exemplars, 1)
	assert.Equal(t, clientTrace, hex(d[0].Exemplars[0].TraceId), "exemplars lead to traces")
	r := c.metrics["resilience.retries"].GetSum().GetDataPoints()
	require.Len(t, r, 1)
	assert.Equal(t, attrs{"gen_ai.tool.name": "x", "error.type": "TIMEOUT"}, fromProto(r[0].Attributes))
	assert.Len(t, c.metrics["resilience.breaker.state"].GetGauge().GetDataPoints(), 6)
	assert.Len(t, c.metrics["resilience.calls.in_flight"].GetSum().GetDataPoints(), 2)

	x.calls(1) // after the shutdown they go on, and tell nobody
	c.Close()
	nothingRuns(t)
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var out []byte
	for _, b := range b {
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// An errorCount counts what it passes on.
type errorCount struct {
	otel.ErrorHandler
	seen chan struct{}
}

func countErrors(t *testing.T, h otel.ErrorHandler) errorCount {
	c := errorCount{h, make(chan struct{}, 10000)}
	setHandler(t, c)
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

// A collector that is down costs the telemetry, and is said once.
func TestCollectorDown(t *testing.T) {
	c := newCollector(t)
	c.Close()
	var log, guardLog recorder
	failed := countErrors(t, otelresilience.LogErrorsOnce(log.log()))
	x := export(t, c.URL, time.Millisecond, time.Minute, resilience.Config{Log: guardLog.log()})
	x.calls(1000)
	failed.wait(t, 20)
	_, _ = x.shutdown(t.Context())
	nothingRuns(t)
	assert.Len(t, log.all(), 1)
	assert.Contains(t, log.all()[0], "refused")
	assert.Empty(t, guardLog.all(), "the observer kept up")
}

// One that hangs holds up no call: none is answered before all have been made.
func TestCollectorHangs(t *testing.T) {
	asked, release := make(chan struct{}, 1000), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	defer s.Close()
	var log, guardLog recorder
	failed := countErrors(t, otelresilience.LogErrorsOnce(log.log()))
	x := export(t, s.URL, time.Millisecond, 100*time.Millisecond, resilience.Config{Log: guardLog.log()})
	x.calls(100)
	<-asked // and never answered, so long as calls are made
	x.calls(5000)
	assert.Empty(t, guardLog.all(), "the observer kept up")

	failed.wait(t, 3)

	close(release)
	_, _ = x.shutdown(t.Context())
	s.Close()
	nothingRuns(t)
	assert.Len(t, log.all(), 1)
}

// A hangingExporter hangs until it is released.
type hangingExporter struct {
	*tracetest.InMemoryExporter
	asked   chan struct{}
	release chan struct{}
}

func (e hangingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	select {
	case e.asked <- struct{}{}:
	default:
	}
	<-e.release
	return e.InMemoryExporter.ExportSpans(ctx, spans)
}

// An exporter that hangs in a processor that waits for it holds up the observer, but no call.
func TestSynchronousExporterHangs(t *testing.T) {
	var log recorder
	e := hangingExporter{tracetest.NewInMemoryExporter(), make(chan struct{}, 1), make(chan struct{})}
	f := newFixture(t, resilience.Config{Log: log.log()}, sdktrace.WithSyncer(e))
	const n = 3000
	for range n {
		_, err := resilience.Do(t.Context(), f.guard, "x", ok)
		require.NoError(t, err)
	}
	<-e.asked
	assert.Equal(t, uint64(1), f.collect()["resilience.call.duration"][0].count, "a call is counted before its span is exported")
	close(e.release)
	flush(t, f.guard)
	require.NoError(t, f.call(t.Context(), "x", ok))
	told := len(e.GetSpans())
	assert.Less(t, told, n)
	assert.EqualValues(t, told, f.collect()["resilience.call.duration"][0].count)
	said := strings.Join(log.all(), "")
	assert.Equal(t, 1, strings.Count(said, "too slow or blocks"), said)
	assert.Equal(t, 1, strings.Count(said, "an observer has caught up"), said)
}
