package otelresilience

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// startSpan starts the span of a call. It sets every attribute that is known by now, because
// the sampler may decide by them.
func (t *Telemetry) startSpan(ctx context.Context, e resilience.CallStart) (context.Context, trace.Span) {
	r := e.Request
	name, kind := executeTool, trace.SpanKindInternal
	attrs := make([]attribute.KeyValue, 0, 5)
	attrs = append(attrs, keyOperation.String(executeTool), text(keyTool, e.Tool))

	if r.Method != "" {
		name, kind = r.Method, trace.SpanKindServer
		attrs = append(attrs, text(keyMethod, r.Method))
	}
	if r.Session != "" {
		attrs = append(attrs, text(keySession, r.Session))
	}
	if r.Protocol != "" {
		attrs = append(attrs, text(keyProtocol, r.Protocol))
	}
	if e.Tool != "" {
		name += " " + e.Tool
	}

	opts := []trace.SpanStartOption{trace.WithTimestamp(e.Time), trace.WithAttributes(attrs...)}
	switch {
	case r.Client && r.Method != "":
		kind = trace.SpanKindClient
	case len(r.Meta) > 0:
		var links []trace.Link
		ctx, links = t.extract(ctx, r.Meta)
		opts = append(opts, trace.WithLinks(links...))
	}
	return t.tracer.Start(ctx, clean(name), append(opts, trace.WithSpanKind(kind))...)
}

// extract returns ctx with the trace and the baggage that meta holds, if any. If that trace
// replaces a span of ctx, extract also returns a link to the span.
func (t *Telemetry) extract(ctx context.Context, meta map[string]any) (context.Context, []trace.Link) {
	before := trace.SpanContextFromContext(ctx)
	ctx = t.propagator.Extract(ctx, carrier(meta))
	after := trace.SpanContextFromContext(ctx)

	same := before.TraceID() == after.TraceID() && before.SpanID() == after.SpanID()
	if !before.IsValid() || same {
		return ctx, nil
	}
	return ctx, []trace.Link{{SpanContext: before}}
}

// A carrier lets propagators read a request's _meta.
type carrier map[string]any

// maxHeader is more than each of the values may have that a standard allows: 8,192 bytes of baggage, and 32 entries of
// 513 bytes each of tracestate.
const maxHeader = 32 << 10

// Get leaves out a malformed baggage: some versions of OpenTelemetry report it as an error, which any client could use
// to hide others from [LogErrorsOnce]. It also leaves out what is too long, which others take long to read.
func (c carrier) Get(key string) string {
	s, _ := c[key].(string)
	if len(s) > maxHeader {
		return ""
	}
	if key == "baggage" {
		if _, err := baggage.Parse(s); err != nil {
			return ""
		}
	}
	return s
}

// Set does nothing, because an observer must not change the request.
func (carrier) Set(string, string) {}

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// addRetry adds an event for a failed attempt to the span.
func (c call) addRetry(e resilience.CallRetry) {
	if c.span.IsRecording() {
		c.span.AddEvent("resilience.retry", trace.WithTimestamp(e.Time), trace.WithAttributes(
			keyAttempt.Int(e.Attempt),
			seconds(keyDelay, e.Delay),
			keyError.String(codeOf(e.Tool, e.Err))))
	}
}

func (c call) endSpan(e resilience.CallEnd) {
	if c.span.IsRecording() {
		c.describe(e)
	}
	c.span.End(trace.WithTimestamp(e.Time))
}

// describe completes the span with what is known at the end of the call.
func (c call) describe(e resilience.CallEnd) {
	if e.Label != e.Tool { // the name may be made up, which wasn't known at the start
		name := c.method
		if name == "" {
			name = executeTool
		}
		c.span.SetName(clean(name))
	}

	c.span.SetAttributes(keyAttempts.Int(e.Attempts))
	if e.Timeout > 0 {
		c.span.SetAttributes(seconds(keyTimeout, e.Timeout))
	}
	if e.Unfinished {
		c.span.SetAttributes(keyUnfinished.Bool(true))
	}
	if e.Err == nil {
		return
	}

	c.span.SetAttributes(text(keyCode, string(e.Err.Code)), keyCounted.Bool(e.Counted))
	if e.Err.RetryAfter > 0 {
		c.span.SetAttributes(seconds(keyRetryAfter, e.Err.RetryAfter))
	}
	if failure := c.errorType(e.Err); failure != "" {
		c.span.SetAttributes(keyError.String(failure))
		c.span.SetStatus(codes.Error, validUTF8(e.Err.Message[:min(len(e.Err.Message), maxMessage)]))
	}
	addException(c.span, e.Err, e.Time)
}

// makeLateSpan makes the span of a late result. It is a child of the call's span, which has
// usually ended by then, and is sampled like that.
func (t *Telemetry) makeLateSpan(ctx context.Context, c call, e resilience.LateResult) {
	attrs := []attribute.KeyValue{keyOperation.String(executeTool), text(keyTool, e.Tool)}
	if e.Err != nil {
		own := resilience.AsError(e.Tool, e.Err)
		attrs = append(attrs, text(keyCode, string(own.Code)))
		if own.RetryAfter > 0 {
			attrs = append(attrs, seconds(keyRetryAfter, own.RetryAfter))
		}
	}

	_, span := t.tracer.Start(trace.ContextWithSpan(ctx, c.span), "resilience.late_result",
		trace.WithTimestamp(e.Time.Add(-e.Late)), trace.WithAttributes(attrs...))
	addException(span, e.Err, e.Time)
	span.End(trace.WithTimestamp(e.Time))
}

// addException adds an event to span if err is a panic. It leaves out the value of the panic,
// whose text is as confidential as that of any other cause.
func addException(span trace.Span, err error, at time.Time) {
	var p *resilience.PanicError
	if !errors.As(err, &p) {
		return
	}
	span.AddEvent("exception", trace.WithTimestamp(at), trace.WithAttributes(
		keyException.String(fmt.Sprintf("%T", p.Value)),
		keyStack.String(validUTF8(string(p.Stack)))))
}
