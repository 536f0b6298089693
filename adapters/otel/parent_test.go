package otelresilience_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

type parentCase struct {
	meta   map[string]any
	found  bool   // whether meta holds a trace
	state  string // its tracestate
	member string // of the baggage, as the tool receives it
}

func TestParentIsTheClientsTraceOrElseTheContextsSpan(t *testing.T) {
	type meta = map[string]any
	const zeros = "00-00000000000000000000000000000000-0000000000000000-01"
	for name, tc := range map[string]parentCase{
		"nothing":  {},
		"no trace": {meta: meta{"progressToken": 1.0}},
		"a trace":  {meta: meta{"traceparent": traceparent}, found: true},
		"with tracestate": {
			meta: meta{"traceparent": traceparent, "tracestate": "a=1"}, found: true, state: "a=1",
		},
		"with malformed tracestate": {meta: meta{"traceparent": traceparent, "tracestate": "=,="}, found: true},
		"with tracestate of another type": {
			meta: meta{"traceparent": traceparent, "tracestate": []any{"a=1"}}, found: true,
		},
		"with baggage": {
			meta: meta{"traceparent": traceparent, "baggage": "who=alice"}, found: true, member: "alice",
		},
		"baggage alone":          {meta: meta{"baggage": "who=alice"}, member: "alice"},
		"with malformed baggage": {meta: meta{"traceparent": traceparent, "baggage": "=;=,,"}, found: true},
		"malformed":              {meta: meta{"traceparent": "00-xyz"}},
		"all zeros":              {meta: meta{"traceparent": zeros}},
		"empty":                  {meta: meta{"traceparent": ""}},
		"a number":               {meta: meta{"traceparent": 7.0}},
		"a list":                 {meta: meta{"traceparent": []any{traceparent}}},
		"nil":                    {meta: meta{"traceparent": nil}},
		"under another prefix":   {meta: meta{"io.example/traceparent": traceparent}},
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
	}, withMeta(tc.meta)))

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

// The transport may have extracted the same trace already.
func TestOnlyTheSameSpanInContextIsNoLink(t *testing.T) {
	for name, tc := range map[string]struct {
		traceparent string
		links       int
	}{
		"the same span":                  {traceparent: traceparent},
		"another span of the same trace": {traceparent: "00-" + clientTrace + "-00000000000000aa-01", links: 1},
		"a span of another trace": {
			traceparent: "00-000000000000000000000000000000bb-" + clientSpan + "-01", links: 1,
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			f := newFixture(t, resilience.Config{})
			carrier := propagation.MapCarrier{"traceparent": tc.traceparent}
			ctx := propagation.TraceContext{}.Extract(t.Context(), carrier)
			require.NoError(t, f.call(ctx, "x", succeed, withTrace()))
			s := f.span("tools/call x")
			assert.Equal(t, clientSpan, s.Parent.SpanID().String())
			assert.Len(t, s.Links, tc.links)
		})
	}
}

func TestParentOfClientRequestIsTheContextsSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{})
		ctx, around := f.tracer.Start(t.Context(), "agent")
		require.NoError(t, f.call(ctx, "x", succeed, forRequest(resilience.RequestInfo{
			Method: "tools/call", Client: true, Meta: map[string]any{"traceparent": traceparent},
		})))
		s := f.span("tools/call x")
		assert.Equal(t, around.SpanContext().SpanID(), s.Parent.SpanID())
		assert.Empty(t, s.Links)
	})
}

func TestNestedCallIsAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{})
		require.NoError(t, f.call(t.Context(), "outer", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, f.guard, "inner", succeed)
		}, withTrace()))
		outer, inner := f.span("tools/call outer"), f.span("execute_tool inner")
		assert.Equal(t, outer.SpanContext.SpanID(), inner.Parent.SpanID())
		assert.Equal(t, trace.SpanKindInternal, inner.SpanKind)
	})
}

// customPropagator reads a key of its own, lists the keys, and tries to change one.
type customPropagator struct{ t *testing.T }

func (p customPropagator) Inject(context.Context, propagation.TextMapCarrier) {}
func (p customPropagator) Fields() []string                                   { return []string{"x-trace"} }
func (p customPropagator) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	assert.ElementsMatch(p.t, []string{"x-trace", "other"}, carrier.Keys())
	carrier.Set("x-trace", "changed")
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": carrier.Get("x-trace")})
}

func TestPropagatorReadsButDoesntChangeMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		telemetry, err := otelresilience.New(otelresilience.Config{
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
			Propagator:     customPropagator{t},
		})
		require.NoError(t, err)
		guard := newGuard(t, resilience.Config{Observers: []resilience.Observer{telemetry.Observer()}})
		f := &fixture{T: t, spans: spans, guard: guard}

		meta := map[string]any{"x-trace": traceparent, "other": 1}
		require.NoError(t, f.call(t.Context(), "x", succeed, withMeta(meta)))
		assert.Equal(t, clientSpan, f.span("tools/call x").Parent.SpanID().String())
		assert.Equal(t, traceparent, meta["x-trace"])
		require.NoError(t, f.call(t.Context(), "y", succeed, withMeta(nil)), "the propagator isn't asked without _meta")
	})
}

type samplerFunc func(sdktrace.SamplingParameters)

func (f samplerFunc) Description() string { return "test" }
func (f samplerFunc) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	f(p)
	return sdktrace.AlwaysSample().ShouldSample(p)
}

func TestSamplerReceivesNameKindAndAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got sdktrace.SamplingParameters
		sampler := samplerFunc(func(p sdktrace.SamplingParameters) { got = p })
		f := newFixture(t, resilience.Config{}, sdktrace.WithSampler(sampler))
		require.NoError(t, f.call(t.Context(), "x", succeed, forRequest(serverRequest)))
		assert.Equal(t, "tools/call x", got.Name)
		assert.Equal(t, trace.SpanKindServer, got.Kind)
		assert.Contains(t, got.Attributes, attribute.String("gen_ai.tool.name", "x"))
		assert.Contains(t, got.Attributes, attribute.String("mcp.method.name", "tools/call"))
		for _, a := range got.Attributes {
			assert.True(t, a.Valid(), "it has a name and a value")
		}
	})
}

// A reader is a propagator that notes what it could read of a baggage.
type reader struct {
	propagation.TraceContext
	read *[]string
}

func (r reader) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	*r.read = append(*r.read, c.Get("baggage")+c.Get("tracestate"))
	return ctx
}

// OpenTelemetry may report a malformed baggage as an error, which would hide those of a collector. Old versions take
// long to read a tracestate of megabytes, and the observer hears of no other call meanwhile.
func TestNoPropagatorReadsWhatIsMalformedOrTooLong(t *testing.T) {
	var read []string
	telemetry, err := otelresilience.New(otelresilience.Config{Propagator: reader{read: &read}})
	require.NoError(t, err)
	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{telemetry.Observer()}}))
	state := strings.Repeat("a", 32<<10)
	for _, meta := range []map[string]any{
		{"baggage": "who=alice"}, {"baggage": "no equals sign"}, {"baggage": ""},
		{"tracestate": state}, {"tracestate": state + "a"},
	} {
		_, err := resilience.Do(t.Context(), guard, "x", func(context.Context) (int, error) { return 1, nil }, withMeta(meta))
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"who=alice", "", "", state, ""}, read)
}
