package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// A client's trace goes on in the server, by way of _meta, and into the tool.
func TestTraceFromAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		telemetry, err := otelresilience.New(otelresilience.Config{
			TracerProvider: trace.NewTracerProvider(trace.WithSyncer(spans)),
			MeterProvider:  noop.NewMeterProvider(),
		})
		require.NoError(t, err)
		guard := resilience.Must(resilience.New(resilience.Config{
			Observers: []resilience.Observer{telemetry.Observer()},
		}))
		server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
		gosdk.Protect(server, guard)
		var inTool oteltrace.SpanContext
		fails := func(ctx context.Context, _ *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
			inTool = oteltrace.SpanContextFromContext(ctx)
			return nil, nil, resilience.MarkPermanent(assert.AnError)
		}
		mcp.AddTool(server, &mcp.Tool{Name: "x"}, fails)
		serverSide, clientSide := mcp.NewInMemoryTransports()
		_, err = server.Connect(t.Context(), serverSide, nil)
		require.NoError(t, err)
		client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), clientSide, nil)
		require.NoError(t, err)
		defer session.Close()
		_, err = session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "x", Meta: mcp.Meta{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		})
		require.NoError(t, err)
		require.NoError(t, guard.Flush(t.Context()))

		require.Len(t, spans.GetSpans(), 1)
		span := spans.GetSpans()[0]
		assert.Equal(t, "tools/call x", span.Name)
		assert.Equal(t, oteltrace.SpanKindServer, span.SpanKind)
		assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext.TraceID().String())
		assert.Equal(t, "b7ad6b7169203331", span.Parent.SpanID().String())
		assert.Equal(t, span.SpanContext.SpanID(), inTool.SpanID())
		assert.Contains(t, span.Attributes, attribute.String("error.type", "tool_error"))
		assert.Contains(t, span.Attributes, attribute.String("resilience.code", "TOOL_FAILED"))
	})
}
