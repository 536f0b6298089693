package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
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
		s := server.NewMCPServer("s", "1", server.WithToolHandlerMiddleware(mcpgo.Middleware(guard)))
		var inTool oteltrace.SpanContext
		s.AddTool(mcp.NewTool("x"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			inTool = oteltrace.SpanContextFromContext(ctx)
			return nil, resilience.MarkPermanent(assert.AnError)
		})
		c, err := client.NewInProcessClient(s)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Start(t.Context()))
		_, err = c.Initialize(t.Context(), mcp.InitializeRequest{})
		require.NoError(t, err)
		var req mcp.CallToolRequest
		req.Params.Name = "x"
		req.Params.Meta = mcp.NewMetaFromMap(map[string]any{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		})
		_, err = c.CallTool(t.Context(), req)
		require.NoError(t, err)
		require.NoError(t, guard.Flush(t.Context()))

		require.Len(t, spans.GetSpans(), 1)
		span := spans.GetSpans()[0]
		assert.Equal(t, "tools/call x", span.Name)
		assert.Equal(t, oteltrace.SpanKindServer, span.SpanKind)
		assert.Equal(t, "b7ad6b7169203331", span.Parent.SpanID().String())
		assert.Equal(t, span.SpanContext.SpanID(), inTool.SpanID())
		assert.Contains(t, span.Attributes, attribute.String("error.type", "tool_error"))
		assert.Contains(t, span.Attributes, attribute.String("resilience.code", "TOOL_FAILED"))
	})
}
