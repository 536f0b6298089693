package otelresilience

import (
	"context"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of this package's tracer and meter.
const scope = "github.com/seed8d1e2389/resilience/adapters/otel"

// Config configures a [Telemetry]. The zero value is all defaults.
type Config struct {
	// TracerProvider makes the spans. Nil means OpenTelemetry's global provider, which may
	// also be set later.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. Nil means OpenTelemetry's global provider, which may
	// also be set later.
	MeterProvider metric.MeterProvider

	// Propagator reads the client's trace from a request's _meta. Nil means W3C trace context
	// and baggage, which are what MCP names. It doesn't mean the global propagator, which is
	// for HTTP headers.
	Propagator propagation.TextMapPropagator
}

// Telemetry makes spans and metrics of calls. Create one with [New]; the zero value can't be
// used. Its methods are safe for concurrent use, and several guards may share it.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	meter      metric.Meter
	instruments
}

// New returns telemetry with the given configuration. If the MeterProvider can't make the
// instruments, New returns its errors.
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

	meter := cfg.MeterProvider.Meter(scope)
	instruments, err := newInstruments(meter)
	if err != nil {
		return nil, err
	}
	return &Telemetry{
		tracer:      cfg.TracerProvider.Tracer(scope),
		propagator:  cfg.Propagator,
		meter:       meter,
		instruments: instruments,
	}, nil
}

// Observer returns an observer for a guard's Config.Observers. List it once in each guard.
func (t *Telemetry) Observer() resilience.Observer {
	return resilience.Observer{Start: t.start, Retry: t.retry, End: t.end, Late: t.late, Breaker: t.recordBreaker}
}

// A call is what start leaves in the context for the later events of a call.
type call struct {
	span   trace.Span
	method string // of the MCP request; empty if there is none
	client bool   // the request is one that the server makes
}

// callKey contains the Telemetry, so that two of them in one guard don't mix up their spans.
type callKey struct{ *Telemetry }

// callOf returns the call to which ctx belongs.
func (t *Telemetry) callOf(ctx context.Context) call { return ctx.Value(callKey{t}).(call) }

// context returns a context for recording metrics. It holds the span, which exemplars need,
// but not the client's baggage.
func (c call) context() context.Context {
	return trace.ContextWithSpan(context.Background(), c.span)
}

func (t *Telemetry) start(ctx context.Context, e resilience.CallStart) context.Context {
	c := call{method: e.Request.Method, client: e.Request.Client}
	ctx, c.span = t.startSpan(ctx, e)
	return context.WithValue(ctx, callKey{t}, c)
}

func (t *Telemetry) retry(ctx context.Context, e resilience.CallRetry) {
	c := t.callOf(ctx)
	t.recordRetry(c, e)
	c.addRetry(e)
}

// end records the metrics before it ends the span, because a span processor that exports
// synchronously may hang.
func (t *Telemetry) end(ctx context.Context, e resilience.CallEnd) {
	c := t.callOf(ctx)
	t.recordEnd(c, e)
	c.endSpan(e)
}

func (t *Telemetry) late(ctx context.Context, e resilience.LateResult) {
	c := t.callOf(ctx)
	t.recordLate(c, e)
	t.makeLateSpan(ctx, c, e)
}
