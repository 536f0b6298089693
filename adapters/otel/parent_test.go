package otelresilience_test

import (
	"context"
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

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
	traceparent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

func fromClient(traceparent any) resilience.Option {
	return withMeta(map[string]any{"traceparent": traceparent})
}

func withMeta(meta map[string]any) resilience.Option {
	return resilience.ForRequest(resilience.Request{Method: "tools/call", Meta: meta})
}

func TestParent(t *testing.T) {
	for name, tc := range map[string]struct {
		meta   map[string]any
		found  bool // the trace in meta
		state  string
		member string // of the baggage, as the tool has it
	}{
		"nothing":              {},
		"no trace":             {meta: map[string]any{"progressToken": 1.0}},
		"a trace":              {meta: map[string]any{"traceparent": traceparent}, found: true},
		"with its state":       {meta: map[string]any{"traceparent": traceparent, "tracestate": "a=1"}, found: true, state: "a=1"},
		"with a bad state":     {meta: map[string]any{"traceparent": traceparent, "tracestate": "=,="}, found: true},
		"a state that's none":  {meta: map[string]any{"traceparent": traceparent, "tracestate": []any{"a=1"}}, found: true},
		"with baggage":         {meta: map[string]any{"traceparent": traceparent, "baggage": "who=alice"}, found: true, member: "alice"},
		"baggage alone":        {meta: map[string]any{"baggage": "who=alice"}, member: "alice"},
		"bad baggage":          {meta: map[string]any{"traceparent": traceparent, "baggage": "=;=,,"}, found: true},
		"malformed":            {meta: map[string]any{"traceparent": "00-xyz"}},
		"all zeros":            {meta: map[string]any{"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"}},
		"empty":                {meta: map[string]any{"traceparent": ""}},
		"a number":             {meta: map[string]any{"traceparent": 7.0}},
		"a list":               {meta: map[string]any{"traceparent": []any{traceparent}}},
		"nil":                  {meta: map[string]any{"traceparent": nil}},
		"under another prefix": {meta: map[string]any{"io.example/traceparent": traceparent}},
	} {
		for _, ambient := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, resilience.Config{})
					ctx := t.Context()
					var around trace.Span
					if ambient {
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
					case ambient:
						assert.Equal(t, around.SpanContext().SpanID(), s.Parent.SpanID())
					default:
						assert.False(t, s.Parent.IsValid())
					}
					if tc.found && ambient {
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
				})
			})
		}
	}
}

// What carried the request may have had the same trace in it: that is no link.
func TestParentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{})
		ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": traceparent})
		require.NoError(t, f.call(ctx, "x", ok, fromClient(traceparent)))
		s := f.span("tools/call x")
		assert.Equal(t, clientSpan, s.Parent.SpanID().String())
		assert.Empty(t, s.Links)
	})
}

// A request that the guard makes is part of the trace around it, whatever is in its _meta.
func TestParentOfClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{})
		ctx, around := f.tracer.Start(t.Context(), "agent")
		require.NoError(t, f.call(ctx, "x", ok, resilience.ForRequest(resilience.Request{
			Method: "tools/call", Client: true, Meta: map[string]any{"traceparent": traceparent},
		})))
		s := f.span("tools/call x")
		assert.Equal(t, around.SpanContext().SpanID(), s.Parent.SpanID())
		assert.Empty(t, s.Links)
	})
}

// A call in a call is its child, and each ends its own span.
func TestNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{})
		require.NoError(t, f.call(t.Context(), "outer", func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, f.guard, "inner", ok)
		}, fromClient(traceparent)))
		outer, inner := f.span("tools/call outer"), f.span("execute_tool inner")
		assert.Equal(t, outer.SpanContext.SpanID(), inner.Parent.SpanID())
		assert.Equal(t, trace.SpanKindInternal, inner.SpanKind)
	})
}

// custom is a propagator with a key of its own, which also asks what there is.
type custom struct{ t *testing.T }

func (c custom) Inject(context.Context, propagation.TextMapCarrier) {}
func (c custom) Fields() []string                                   { return []string{"x-trace"} }
func (c custom) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	assert.ElementsMatch(c.t, []string{"x-trace", "other"}, carrier.Keys())
	carrier.Set("x-trace", "changed")
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": carrier.Get("x-trace")})
}

func TestPropagator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		telemetry, err := otelresilience.New(otelresilience.Config{
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
			Propagator:     custom{t},
		})
		require.NoError(t, err)
		guard := newGuard(t, resilience.Config{Observers: []resilience.Observer{telemetry.Observer()}})
		f := &fixture{T: t, spans: spans, guard: guard}
		meta := map[string]any{"x-trace": traceparent, "other": 1}
		require.NoError(t, f.call(t.Context(), "x", ok, withMeta(meta)))
		assert.Equal(t, clientSpan, f.span("tools/call x").Parent.SpanID().String())
		assert.Equal(t, traceparent, meta["x-trace"])
	})
}

// What a sampler may decide by is there when it is asked.
func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked sdktrace.SamplingParameters
		sampler := samplerFunc(func(p sdktrace.SamplingParameters) { asked = p })
		f := newFixture(t, resilience.Config{}, sdktrace.WithSampler(sampler))
		require.NoError(t, f.call(t.Context(), "x", ok, resilience.ForRequest(request)))
		assert.Equal(t, "tools/call x", asked.Name)
		assert.Equal(t, trace.SpanKindServer, asked.Kind)
		assert.Contains(t, asked.Attributes, attribute.String("gen_ai.tool.name", "x"))
		assert.Contains(t, asked.Attributes, attribute.String("mcp.method.name", "tools/call"))
	})
}

type samplerFunc func(sdktrace.SamplingParameters)

func (f samplerFunc) Description() string { return "test" }
func (f samplerFunc) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	f(p)
	return sdktrace.AlwaysSample().ShouldSample(p)
}
