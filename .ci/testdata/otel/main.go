// A program whose guarded call becomes a span.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func main() {
	exporter := tracetest.NewInMemoryExporter()
	telemetry, err := otelresilience.New(otelresilience.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)),
	})
	if err != nil {
		log.Fatal(err)
	}
	guard := resilience.Must(resilience.New(resilience.Config{
		Observers: []resilience.Observer{telemetry.Observer()},
	}))

	ctx := context.Background()
	_, _ = resilience.Do(ctx, guard, "search", func(context.Context) (string, error) {
		return "", errors.New("the index is corrupt")
	})
	if err := guard.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	spans := exporter.GetSpans()
	if len(spans) != 1 {
		log.Fatalf("there are %d spans instead of one", len(spans))
	}
	fmt.Printf("span %q: %s\n", spans[0].Name, spans[0].Status.Code)
}
