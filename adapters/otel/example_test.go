package otelresilience_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func Example() {
	// A program would use OpenTelemetry's OTLP exporters, and WithBatcher.
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelresilience.New(otelresilience.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard := resilience.Must(resilience.New(resilience.Config{
		Observers: []resilience.Observer{telemetry.Observer()},
	}))
	stop, err := telemetry.Watch(guard)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	ctx := context.Background()
	// An adapter for MCP adds the request to each of its calls. Without one, the program does.
	request := resilience.ForRequest(resilience.Request{
		RequestInfo: resilience.RequestInfo{
			Method: "tools/call",
			Meta:   map[string]any{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		},
	})
	_, _ = resilience.Do(ctx, guard, "search", func(context.Context) (string, error) {
		return "", errors.New("the index is corrupt")
	}, request)
	_, _ = resilience.Do(ctx, guard, "warm-up", func(context.Context) (string, error) { return "done", nil })
	_ = guard.Flush(ctx)

	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name, span.SpanKind, span.Status.Code, span.Parent.TraceID())
		for _, kv := range span.Attributes {
			if kv.Key == "resilience.code" {
				fmt.Println("  code", kv.Value.AsString())
			}
		}
	}
	// Output:
	// tools/call search server Error 4bf92f3577b34da6a3ce929d0e0e4736
	//   code TOOL_FAILED
	// execute_tool warm-up internal Unset 00000000000000000000000000000000
}
