package otelresilience

import (
	"context"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope names us to OpenTelemetry.
const scope = "github.com/seed8d1e2389/resilience/adapters/otel"

// Config configures a [Telemetry]. The zero value works.
type Config struct {
	// TracerProvider makes the spans. nil: OpenTelemetry's global one, which may also be
	// set later.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. nil: OpenTelemetry's global one, which may also be
	// set later.
	MeterProvider metric.MeterProvider

	// Propagator reads the client's trace from a request's _meta. nil: W3C trace context
	// and baggage, which are what MCP names; not the global one, which is for HTTP
	// headers.
	Propagator propagation.TextMapPropagator
}

// Telemetry makes spans and metrics of calls. Make one with [New]; the zero value is of
// no use. Its methods are safe for concurrent use, and several guards may share it.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	meter      metric.Meter
	instruments
}

// New returns telemetry configured by cfg, or the errors of a MeterProvider that can't
// make its instruments.
func New(cfg Config) (*Telemetry, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	t := &Telemetry{
		tracer:     cfg.TracerProvider.Tracer(scope),
		propagator: cfg.Propagator,
		meter:      cfg.MeterProvider.Meter(scope),
	}
	var err error
	t.instruments, err = newInstruments(t.meter)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Observer returns what a guard's Config.Observers wants, once in each guard.
func (t *Telemetry) Observer() resilience.Observer {
	return resilience.Observer{Start: t.start, Retry: t.retry, End: t.end, Late: t.late, Breaker: t.breaker}
}

// A call is what the context keeps of its start. The zero call is one whose start we were
// not told of.
type call struct {
	span   trace.Span
	method string // of the MCP request; "": none
	client bool
}

// callKey has the Telemetry in it, so that two in one guard don't take each other's spans.
type callKey struct{ *Telemetry }

func (t *Telemetry) callOf(ctx context.Context) call {
	if c, ok := ctx.Value(callKey{t}).(call); ok {
		return c
	}
	return call{span: trace.SpanFromContext(context.Background())} // which does nothing
}

// bare holds the span for a metric's exemplars, and none of the client's baggage.
func (c call) bare() context.Context {
	return trace.ContextWithSpan(context.Background(), c.span)
}

func (t *Telemetry) start(ctx context.Context, e resilience.CallStart) context.Context {
	c := call{method: e.Request.Method, client: e.Request.Client}
	ctx, c.span = t.startSpan(ctx, e)
	return context.WithValue(ctx, callKey{t}, c)
}

func (t *Telemetry) retry(ctx context.Context, e resilience.CallRetry) {
	c := t.callOf(ctx)
	t.countRetry(c, e)
	c.retrying(e)
}

// end counts before it ends the span: a span processor that exports at once may hang.
func (t *Telemetry) end(ctx context.Context, e resilience.CallEnd) {
	c := t.callOf(ctx)
	t.countEnd(c, e)
	c.end(e)
}

func (t *Telemetry) late(ctx context.Context, e resilience.LateResult) {
	t.countLate(t.callOf(ctx), e)
	t.lateSpan(ctx, e)
}

func (t *Telemetry) breaker(e resilience.BreakerChange) { t.countChange(e) }
