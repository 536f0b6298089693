package benchmarks

import (
	"context"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/benchmarks/peers"
	"github.com/seed8d1e2389/resilience/benchmarks/servers"
)

// BenchmarkMCP measures a whole call, from a client to a server in the same process and back.
func BenchmarkMCP(b *testing.B) {
	for _, sdk := range servers.SDKs {
		for _, p := range sdk.Peers() {
			b.Run("sdk="+sdk.Name+"/peer="+p.Name, func(b *testing.B) {
				do, ctx := p.New(peers.Default()), context.Background()
				b.ReportAllocs()
				for b.Loop() {
					if v, err := do(ctx, "tool", done); err != nil || v != value {
						b.Fatal(v, err)
					}
				}
			})
		}
	}
}

// A measured call must reach the tool, and the guard must really guard it.
func TestServersReachTheToolUnlessTheBreakerIsOpen(t *testing.T) {
	for _, sdk := range servers.SDKs {
		for _, p := range sdk.Peers() {
			t.Run(sdk.Name+"/"+p.Name, func(t *testing.T) {
				do := p.New(peers.Default())
				if v, err := do(t.Context(), "tool", done); err != nil || v != value {
					t.Fatal(v, err)
				}
				for range peers.Default().Failures {
					_, err := do(t.Context(), "tool", func(context.Context) (string, error) {
						return "", resilience.MarkPermanent(errTool)
					})
					if err == nil {
						t.Fatal("no error")
					}
				}

				guarded := p.Name == servers.Guard || p.Name == servers.Cooperative
				if _, err := do(t.Context(), "tool", done); (err != nil) != guarded {
					t.Fatal(err)
				}
			})
		}
	}
}
