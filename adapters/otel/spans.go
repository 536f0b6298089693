package otelresilience

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// startSpan starts the span of a call, with what a sampler may want to know of it.
func (t *Telemetry) startSpan(ctx context.Context, e resilience.CallStart) (context.Context, trace.Span) {
	r := e.Request
	attrs := make([]attribute.KeyValue, 0, 5)
	attrs = append(attrs, keyOperation.String(executeTool), text(keyTool, e.Tool))
	name, kind := executeTool, trace.SpanKindInternal
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
		ctx, links = t.parent(ctx, r.Meta)
		opts = append(opts, trace.WithLinks(links...))
	}
	return t.tracer.Start(ctx, clean(name), append(opts, trace.WithSpanKind(kind))...)
}

// parent returns ctx with the trace and the baggage in meta, if there are any, and a link
// to the span of ctx's that meta's has displaced.
func (t *Telemetry) parent(ctx context.Context, meta map[string]any) (context.Context, []trace.Link) {
	ambient := trace.SpanContextFromContext(ctx)
	ctx = t.propagator.Extract(ctx, carrier(meta))
	found := trace.SpanContextFromContext(ctx)
	if !ambient.IsValid() || ambient.TraceID() == found.TraceID() && ambient.SpanID() == found.SpanID() {
		return ctx, nil
	}
	return ctx, []trace.Link{{SpanContext: ambient}}
}

// A carrier is a request's _meta, as propagators read it.
type carrier map[string]any

func (c carrier) Get(key string) string {
	s, _ := c[key].(string)
	return s
}

// Set does nothing: the request isn't ours to change.
func (carrier) Set(string, string) {}

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

func (c call) retrying(e resilience.CallRetry) {
	if c.span.IsRecording() {
		c.span.AddEvent("resilience.retry", trace.WithTimestamp(e.Time), trace.WithAttributes(
			keyAttempt.Int(e.Attempt),
			seconds(keyDelay, e.Delay),
			keyError.String(codeOf(e.Tool, e.Err))))
	}
}

func (c call) end(e resilience.CallEnd) {
	if c.span.IsRecording() {
		c.describe(e)
	}
	c.span.End(trace.WithTimestamp(e.Time))
}

func (c call) describe(e resilience.CallEnd) {
	if e.Label != e.Tool { // which wasn't known at the start
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
	c.span.SetAttributes(text(keyCode, string(e.Err.Code)))
	if e.Err.RetryAfter > 0 {
		c.span.SetAttributes(seconds(keyRetryAfter, e.Err.RetryAfter))
	}
	if failure := c.errorType(e.Err); failure != "" {
		c.span.SetAttributes(keyError.String(failure))
		c.span.SetStatus(codes.Error, strings.ToValidUTF8(e.Err.Message, "\uFFFD"))
	}
	if p := panicIn(e.Err); p != nil {
		c.span.AddEvent("exception", trace.WithTimestamp(e.Time), trace.WithAttributes(exception(p)...))
	}
}

// lateSpan is a child of the call's span, which has ended by then, as a rule. So it is
// sampled as that was.
func (t *Telemetry) lateSpan(ctx context.Context, e resilience.LateResult) {
	attrs := []attribute.KeyValue{keyOperation.String(executeTool), text(keyTool, e.Tool)}
	if e.Err != nil {
		attrs = append(attrs, keyCode.String(codeOf(e.Tool, e.Err)))
	}
	_, span := t.tracer.Start(trace.ContextWithSpan(ctx, t.callOf(ctx).span), "resilience.late_result",
		trace.WithTimestamp(e.Time.Add(-e.Late)), trace.WithAttributes(attrs...))
	if p := panicIn(e.Err); p != nil {
		span.AddEvent("exception", trace.WithTimestamp(e.Time), trace.WithAttributes(exception(p)...))
	}
	span.End(trace.WithTimestamp(e.Time))
}

// exception leaves out what the panic said: that is text like that of any other cause.
func exception(p *resilience.PanicError) []attribute.KeyValue {
	return []attribute.KeyValue{keyException.String(fmt.Sprintf("%T", p.Value)), keyStack.String(strings.ToValidUTF8(string(p.Stack), "\uFFFD"))}
}

// panicIn returns the panic that err tells of, nil if none. Methods of err may panic.
func panicIn(err error) (p *resilience.PanicError) {
	defer func() {
		if recover() != nil {
			p = nil
		}
	}()
	errors.As(err, &p)
	return p
}
