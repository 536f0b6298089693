// Package collector_test sends telemetry to OpenTelemetry's own Collector, which runs inside of
// the test. It belongs to a module of its own because the Collector has many dependencies.
package collector_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry"
)

// A memory is an exporter of the Collector that keeps what the Collector received.
type memory struct {
	component.StartFunc
	component.ShutdownFunc

	mu      sync.Mutex
	spans   map[string]ptrace.Span    // by name
	metrics map[string]pmetric.Metric // by name, the latest of each
}

func (*memory) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (m *memory) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, resource := range td.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				m.spans[span.Name()] = ptrace.NewSpan()
				span.CopyTo(m.spans[span.Name()])
			}
		}
	}
	return nil
}

func (m *memory) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, resource := range md.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				m.metrics[metric.Name()] = pmetric.NewMetric()
				metric.CopyTo(m.metrics[metric.Name()])
			}
		}
	}
	return nil
}

func (m *memory) factories() (otelcol.Factories, error) {
	var f otelcol.Factories
	f.Telemetry = telemetry.NewFactory(func() component.Config { return &struct{}{} }) // none of its own

	var errReceivers, errExporters error
	f.Receivers, errReceivers = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	f.Exporters, errExporters = otelcol.MakeFactoryMap[exporter.Factory](exporter.NewFactory(
		component.MustNewType("memory"),
		func() component.Config { return &struct{}{} },
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
			return m, nil
		}, component.StabilityLevelDevelopment),
		exporter.WithMetrics(func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) {
			return m, nil
		}, component.StabilityLevelDevelopment),
	))
	return f, errors.Join(errReceivers, errExporters)
}

// startCollector runs a Collector until the test ends, and returns its address.
func startCollector(t *testing.T, m *memory) string {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())

	c, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo:               component.NewDefaultBuildInfo(),
		Factories:               m.factories,
		DisableGracefulShutdown: true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
			URIs: []string{fmt.Sprintf(`yaml:{
				receivers: {otlp: {protocols: {http: {endpoint: %q}}}},
				exporters: {memory: {}},
				service: {pipelines: {
					traces: {receivers: [otlp], exporters: [memory]},
					metrics: {receivers: [otlp], exporters: [memory]}}}}`, address)},
		}},
	})
	require.NoError(t, err)

	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()
	t.Cleanup(func() {
		c.Shutdown()
		assert.NoError(t, <-ended)
	})
	running := func() bool { return c.GetState() == otelcol.StateRunning }
	require.Eventually(t, running, 30*time.Second, time.Millisecond)
	return address
}

func TestCollectorReceivesSpansAndMetrics(t *testing.T) {
	m := &memory{spans: make(map[string]ptrace.Span), metrics: make(map[string]pmetric.Metric)}
	address := startCollector(t, m)
	var log recorder
	countErrors(t, otelresilience.LogErrorsOnce(log.log()))
	g := newExportingGuard(t, "http://"+address, time.Hour, time.Minute, resilience.Config{
		Tools: map[string]resilience.Tool{"search": {Effect: resilience.ReadOnly}},
		Retry: resilience.Retry{Backoff: resilience.Backoff{Base: time.Millisecond, Jitter: resilience.NoJitter}},
	})
	synctest.Test(t, func(t *testing.T) { // see exportingGuard.call
		makeCalls(t, g)
		require.NoError(t, g.guard.Flush(t.Context()))
	})
	errTraces, errMeters := g.shutdown(t.Context())
	require.NoError(t, errTraces)
	require.NoError(t, errMeters)
	assert.Empty(t, log.all())

	m.mu.Lock()
	defer m.mu.Unlock()
	m.checkSpans(t)
	m.checkMetrics(t)

	g.call(1) // calls continue after the shutdown, but are no longer exported
}

// makeCalls makes a call that fails in its second attempt, and one without a request. Both
// bring text that isn't UTF-8.
func makeCalls(t *testing.T, g *exportingGuard) {
	t.Helper()
	request := resilience.ForRequest(resilience.Request{RequestInfo: resilience.RequestInfo{
		Method: "tools/call", Session: "s\xff", Protocol: "2025-11-25",
		Meta: map[string]any{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
	}})
	_, err := resilience.Do(t.Context(), g.guard, "search", func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 0, context.DeadlineExceeded
		}
		return 0, &resilience.Error{
			Code: resilience.CodeConnectionLost, Message: "gone \xff", Retryable: true, RetryAfter: time.Minute,
		}
	}, request)
	require.Error(t, err)

	_, err = resilience.Do(t.Context(), g.guard, "warm \xff up", succeed)
	require.NoError(t, err)
}

func (m *memory) checkSpans(t *testing.T) {
	t.Helper()
	require.Contains(t, m.spans, "execute_tool warm \uFFFD up")
	require.Contains(t, m.spans, "tools/call search")
	s := m.spans["tools/call search"]
	assert.Equal(t, ptrace.SpanKindServer, s.Kind())
	assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", s.TraceID().String())
	assert.Equal(t, "00f067aa0ba902b7", s.ParentSpanID().String())
	assert.Equal(t, ptrace.StatusCodeError, s.Status().Code())
	assert.Equal(t, "gone \uFFFD", s.Status().Message())
	assert.Equal(t, map[string]any{
		"mcp.method.name": "tools/call", "mcp.session.id": "s\uFFFD", "mcp.protocol.version": "2025-11-25",
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "error.type": "tool_error",
		"resilience.code": "CONNECTION_LOST", "resilience.attempts": int64(2), "resilience.timeout": 60.0,
		"resilience.retry_after": 60.0,
	}, s.Attributes().AsRaw())

	require.Equal(t, 1, s.Events().Len())
	assert.Equal(t, "resilience.retry", s.Events().At(0).Name())
	assert.Equal(t, map[string]any{
		"resilience.attempt": int64(1), "resilience.delay": 0.001, "error.type": "TIMEOUT",
	}, s.Events().At(0).Attributes().AsRaw())
}

func (m *memory) checkMetrics(t *testing.T) {
	t.Helper()
	require.Contains(t, m.metrics, "mcp.server.operation.duration")
	d := m.metrics["mcp.server.operation.duration"]
	assert.Equal(t, "s", d.Unit())
	require.Equal(t, 1, d.Histogram().DataPoints().Len())
	point := d.Histogram().DataPoints().At(0)
	assert.Equal(t, map[string]any{
		"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
		"error.type": "tool_error", "resilience.code": "CONNECTION_LOST",
	}, point.Attributes().AsRaw())
	require.Equal(t, 1, point.Exemplars().Len())
	trace := m.spans["tools/call search"].TraceID()
	assert.Equal(t, trace, point.Exemplars().At(0).TraceID(), "exemplars lead to traces")

	for _, name := range []string{
		"resilience.call.duration", "resilience.call.attempts", "resilience.retries",
		"resilience.breaker.state", "resilience.calls.in_flight", "resilience.calls.abandoned",
	} {
		assert.Contains(t, m.metrics, name)
	}
}
