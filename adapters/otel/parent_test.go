package otelresilience_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

type parentCase struct {
	meta   map[string]any
	client bool   // the server makes the request
	found  bool   // whether meta holds a trace
	state  string // its tracestate
	member string // of the baggage, as the tool receives it
}

func TestParentIsTheClientsTraceOrElseTheContextsSpan(t *testing.T) {
	type meta = map[string]any
	for name, tc := range map[string]parentCase{
		"nothing": {},
		"a trace": {meta: meta{"traceparent": traceparent}, found: true},
		"with tracestate": {
			meta: meta{"traceparent": traceparent, "tracestate": "a=1"}, found: true, state: "a=1",
		},
		"with baggage": {
			meta: meta{"traceparent": traceparent, "baggage": "who=alice"}, found: true, member: "alice",
		},
		"baggage alone":          {meta: meta{"baggage": "who=alice"}, member: "alice"},
		"with malformed baggage": {meta: meta{"traceparent": traceparent, "baggage": "=;=,,"}, found: true},
		"of a client":            {meta: meta{"traceparent": traceparent}, client: true},
		"malformed":              {meta: meta{"traceparent": "00-xyz"}},
	} {
		runInBubble(t, name, func(t *testing.T) { tc.run(t, false) })
		runInBubble(t, name+", in a span", func(t *testing.T) { tc.run(t, true) })
	}
}

// run makes one call, with a span around it or without one.
func (tc parentCase) run(t *testing.T, inSpan bool) {
	f := newFixture(t, resilience.Config{})
	ctx := t.Context()
	var around trace.Span
	if inSpan {
		ctx, around = f.tracer.Start(ctx, "POST /mcp")
	}
	require.NoError(t, f.call(ctx, "x", func(ctx context.Context) (int, error) {
		assert.Equal(t, tc.member, baggage.FromContext(ctx).Member("who").Value())
		_, inner := f.tracer.Start(ctx, "query")
		inner.End()
		return 1, nil
	}, forRequest(resilience.RequestInfo{Method: "tools/call", Client: tc.client, Meta: tc.meta})))

	s := f.span("tools/call x")
	assert.Equal(t, s.SpanContext.SpanID(), f.span("query").Parent.SpanID())
	switch {
	case tc.found:
		assert.Equal(t, clientTrace, s.SpanContext.TraceID().String())
		assert.Equal(t, clientSpan, s.Parent.SpanID().String())
		assert.True(t, s.Parent.IsRemote())
		assert.Equal(t, tc.state, s.SpanContext.TraceState().String())
	case inSpan:
		assert.Equal(t, around.SpanContext().SpanID(), s.Parent.SpanID())
	default:
		assert.False(t, s.Parent.IsValid())
	}

	if tc.found && inSpan {
		require.Len(t, s.Links, 1)
		assert.Equal(t, around.SpanContext().SpanID(), s.Links[0].SpanContext.SpanID())
	} else {
		assert.Empty(t, s.Links)
	}
	for name, points := range f.collect() {
		for _, p := range points {
			assert.NotContains(t, p.attrs, "who", name)
		}
	}
}

// A propagator of the program's own reads _meta, but can't change it.
type customPropagator struct{ propagation.TraceContext }

func (p customPropagator) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	for _, key := range carrier.Keys() {
		carrier.Set(key, "changed")
	}
	if len(carrier.Keys()) != 2 || carrier.Get("other") != "" {
		return ctx // which fails the test
	}
	return p.TraceContext.Extract(ctx, propagation.MapCarrier{"traceparent": carrier.Get("x-trace")})
}

func TestPropagatorReadsButDoesntChangeMeta(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	telemetry, err := otelresilience.New(otelresilience.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), Propagator: customPropagator{},
	})
	require.NoError(t, err)
	guard := newGuard(t, resilience.Config{Observers: []resilience.Observer{telemetry.Observer()}})
	f := &fixture{T: t, spans: spans, guard: guard}

	meta := map[string]any{"x-trace": traceparent, "other": 1}
	require.NoError(t, f.call(t.Context(), "x", succeed, withMeta(meta)))
	assert.Equal(t, clientSpan, f.span("tools/call x").Parent.SpanID().String())
	assert.Equal(t, map[string]any{"x-trace": traceparent, "other": 1}, meta)
}

// The transport may have extracted the same trace already.
func TestOnlyTheSameSpanInContextIsNoLink(t *testing.T) {
	for parent, links := range map[string]int{
		traceparent: 0,
		"00-" + clientTrace + "-00000000000000aa-01":                1,
		"00-000000000000000000000000000000bb-" + clientSpan + "-01": 1,
	} {
		f := newFixture(t, resilience.Config{})
		ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": parent})
		require.NoError(t, f.call(ctx, "x", succeed, withTrace()))
		assert.Len(t, f.span("tools/call x").Links, links, parent)
	}
}

// A reader is a propagator that notes what it could read.
type reader struct {
	propagation.TraceContext
	read *[]string
}

func (r reader) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	*r.read = append(*r.read, c.Get("baggage")+c.Get("tracestate"))
	return ctx
}

// OpenTelemetry may report a malformed baggage as an error, which would hide those of a collector. Old versions take
// long to read a tracestate of megabytes.
func TestNoPropagatorReadsWhatIsMalformedOrTooLong(t *testing.T) {
	var read []string
	telemetry, err := otelresilience.New(otelresilience.Config{Propagator: reader{read: &read}})
	require.NoError(t, err)
	f := &fixture{T: t, guard: newGuard(t, resilience.Config{Observers: []resilience.Observer{telemetry.Observer()}})}
	state := strings.Repeat("a", 32<<10)
	for _, meta := range []map[string]any{
		nil, {"baggage": "who=alice"}, {"baggage": "no equal sign"}, {"tracestate": state}, {"tracestate": state + "a"},
	} {
		require.NoError(t, f.call(t.Context(), "x", succeed, withMeta(meta)))
	}
	assert.Equal(t, []string{"who=alice", "", state, ""}, read)
}
