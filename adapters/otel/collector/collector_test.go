// Package collector_test sends telemetry to a collector, by OpenTelemetry's own exporters for OTLP over HTTP. It is in
// a module of its own because of their dependencies.
package collector_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A memory is a collector that keeps what it receives, by name. Like any other, it refuses text that isn't UTF-8.
type memory struct {
	spans   map[string]*trace.Span
	metrics map[string]*metrics.Metric
}

func (m *memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var traces collectortrace.ExportTraceServiceRequest
	var points collectormetrics.ExportMetricsServiceRequest
	switch {
	case err != nil:
	case r.URL.Path == "/v1/traces":
		err = proto.Unmarshal(body, &traces)
	default:
		err = proto.Unmarshal(body, &points)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	for _, resource := range traces.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				m.spans[span.Name] = span
			}
		}
	}
	for _, resource := range points.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, metric := range scope.Metrics {
				m.metrics[metric.Name] = metric
			}
		}
	}
}

// attributesOf returns attributes, those of other types than string with "".
func attributesOf(all []*common.KeyValue) map[string]string {
	out := make(map[string]string)
	for _, kv := range all {
		out[kv.Key] = kv.Value.GetStringValue()
	}
	return out
}

func TestCollectorReceivesSpansAndMetrics(t *testing.T) {
	m := &memory{spans: make(map[string]*trace.Span), metrics: make(map[string]*metrics.Metric)}
	s := httptest.NewServer(m)
	defer s.Close()
	g, shutdown := newGuard(t, s.URL)
	makeCalls(t, g)
	require.NoError(t, shutdown())

	require.Contains(t, m.spans, "execute_tool warm \uFFFD up")
	require.Contains(t, m.spans, "tools/call search")
	span := m.spans["tools/call search"]
	assert.Equal(t, trace.Span_SPAN_KIND_SERVER, span.Kind)
	assert.Equal(t, "gone \uFFFD", span.Status.Message)
	assert.Equal(t, map[string]string{
		"mcp.method.name": "tools/call", "mcp.session.id": "s\uFFFD", "mcp.protocol.version": "2025-11-25",
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "error.type": "tool_error",
		"resilience.code": "CONNECTION_LOST", "resilience.counted": "", "resilience.attempts": "",
		"resilience.timeout": "", "resilience.retry_after": "",
	}, attributesOf(span.Attributes))
	require.Len(t, span.Events, 1)
	assert.Equal(t, "resilience.retry", span.Events[0].Name)

	require.Contains(t, m.metrics, "mcp.server.operation.duration")
	points := m.metrics["mcp.server.operation.duration"].GetHistogram().DataPoints
	require.Len(t, points, 1)
	require.Len(t, points[0].Exemplars, 1)
	assert.Equal(t, span.TraceId, points[0].Exemplars[0].TraceId, "exemplars lead to traces")
	for _, name := range []string{
		"resilience.call.duration", "resilience.call.attempts", "resilience.retries",
		"resilience.breaker.state", "resilience.calls.in_flight", "resilience.calls.abandoned",
	} {
		assert.Contains(t, m.metrics, name)
	}
}

// makeCalls makes a call that fails in its second attempt, and one without a request. Both
// bring text that isn't UTF-8.
func makeCalls(t *testing.T, g *resilience.Guard) {
	t.Helper()
	request := resilience.ForRequest(resilience.Request{RequestInfo: resilience.RequestInfo{
		Method: "tools/call", Session: "s\xff", Protocol: "2025-11-25",
		Meta: map[string]any{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
	}})
	_, err := resilience.Do(t.Context(), g, "search", func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 0, context.DeadlineExceeded
		}
		return 0, &resilience.Error{
			Code: resilience.CodeConnectionLost, Message: "gone \xff", Retryable: true, RetryAfter: time.Minute,
		}
	}, request)
	require.Error(t, err)

	_, err = resilience.Do(t.Context(), g, "warm \xff up", func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.NoError(t, g.Flush(t.Context()))
}

// newGuard returns a guard that exports to the collector at url, set up as users do it. shutdown shuts the exporters
// down, which send what there is.
func newGuard(t *testing.T, url string) (g *resilience.Guard, shutdown func() error) {
	t.Helper()
	spans, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(url+"/v1/traces"))
	require.NoError(t, err)
	points, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(url+"/v1/metrics"))
	require.NoError(t, err)
	traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(points)))

	telemetry, err := otelresilience.New(otelresilience.Config{TracerProvider: traces, MeterProvider: meters})
	require.NoError(t, err)
	g, err = resilience.New(resilience.Config{
		Observers: []resilience.Observer{telemetry.Observer()},
		Tools:     map[string]resilience.Tool{"search": {Effect: resilience.ReadOnly}},
		Retry:     resilience.Retry{Backoff: resilience.Backoff{Base: time.Millisecond, Jitter: resilience.NoJitter}},
	})
	require.NoError(t, err)
	stop, err := telemetry.Watch(g)
	require.NoError(t, err)
	t.Cleanup(stop)
	return g, func() error { return errors.Join(traces.Shutdown(t.Context()), meters.Shutdown(t.Context())) }
}
