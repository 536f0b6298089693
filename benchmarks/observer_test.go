package benchmarks

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/seed8d1e2389/resilience/benchmarks/peers"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
)

// observers are the observers that are compared. Each sets a field of the Config. Calls in a
// loop are faster than any observer can write, so some events are lost, as they would be on
// a server that is as busy.
var observers = []struct {
	name string
	set  func(*testing.B, *resilience.Config)
}{
	{"none", func(*testing.B, *resilience.Config) {}},
	{"slog", func(_ *testing.B, cfg *resilience.Config) {
		log := slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
		cfg.Observers = []resilience.Observer{resilience.LogObserver(log)}
	}},
	{"otel", func(b *testing.B, cfg *resilience.Config) {
		telemetry, err := otelresilience.New(otelresilience.Config{
			TracerProvider: trace.NewTracerProvider(trace.WithBatcher(discard{})),
			MeterProvider:  metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
		})
		if err != nil {
			b.Fatal(err)
		}
		cfg.Observers = []resilience.Observer{telemetry.Observer()}
	}},
}

// discard is a collector that never fails and takes no time.
type discard struct{}

func (discard) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                          { return nil }

// BenchmarkObserver measures a success of which an observer is notified.
func BenchmarkObserver(b *testing.B) {
	for _, o := range observers {
		for _, peer := range []struct {
			name        string
			cooperative bool
		}{{"guard", false}, {"guard-coop", true}} {
			b.Run("observer="+o.name+"/peer="+peer.name, func(b *testing.B) {
				s := peers.Default()
				guard := peers.NewGuard(s, peer.cooperative, func(cfg *resilience.Config) {
					o.set(b, cfg)
					cfg.Log = slog.New(slog.DiscardHandler) // it would only say that events are lost
				})
				ctx, tool := context.Background(), s.Tools[0]

				b.ReportAllocs()
				for b.Loop() {
					if v, err := resilience.Do(ctx, guard, tool, done); err != nil || v != value {
						b.Fatal(v, err)
					}
				}
			})
		}
	}
}
