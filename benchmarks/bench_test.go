package benchmarks

import (
	"context"
	"errors"
	"testing"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

const value = "a value"

var errTool = errors.New("the tool failed")

// tools both return at once. One of them looks at ctx.Done(), for which some peers have to
// make a channel.
var tools = []struct {
	name string
	fn   peers.Tool
}{
	{"done", done},
	{"blind", func(context.Context) (string, error) { return value, nil }},
}

// done looks at its context and returns value.
func done(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	default:
		return value, nil
	}
}

// BenchmarkSuccess measures the case that matters most, in which the tool succeeds.
func BenchmarkSuccess(b *testing.B) {
	for _, tool := range tools {
		for _, p := range peers.List {
			b.Run("tool="+tool.name+"/peer="+p.Name, func(b *testing.B) {
				benchmarkSuccess(b, context.Background(), p, tool.fn)
			})
		}
	}
}

// BenchmarkRequest measures a success under a parent context that can end, as that of a
// request can. Each peer has to watch it.
func BenchmarkRequest(b *testing.B) {
	for _, p := range peers.List {
		b.Run("tool=done/peer="+p.Name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			benchmarkSuccess(b, ctx, p, done)
		})
	}
}

// benchmarkSuccess measures calls of fn, which returns value.
func benchmarkSuccess(b *testing.B, ctx context.Context, p peers.Peer, fn peers.Tool) {
	s := peers.Default()
	do := p.New(s)
	tool := s.Tools[0]

	b.ReportAllocs()
	for b.Loop() {
		if v, err := do(ctx, tool, fn); err != nil || v != value {
			b.Fatal(v, err)
		}
	}
}

// BenchmarkOpen measures a call that an open breaker rejects.
func BenchmarkOpen(b *testing.B) {
	for _, p := range peers.List {
		if !p.Breaks {
			continue
		}
		b.Run("peer="+p.Name, func(b *testing.B) {
			s := peers.Default()
			s.Retries = 0
			do := p.New(s)
			ctx, tool := context.Background(), s.Tools[0]
			calls := 0
			fail := func(context.Context) (string, error) { calls++; return "", errTool }

			for range s.Failures {
				_, _ = do(ctx, tool, fail)
			}

			b.ReportAllocs()
			for b.Loop() {
				if _, err := do(ctx, tool, fail); err == nil {
					b.Fatal("the call wasn't rejected")
				}
			}

			if calls != s.Failures {
				b.Fatalf("the tool was called %d times, want %d", calls, s.Failures)
			}
		})
	}
}

// BenchmarkRetry measures a call whose tool fails twice and then succeeds, without a delay
// before the retries.
func BenchmarkRetry(b *testing.B) {
	for _, p := range peers.List {
		if !p.Retries {
			continue
		}
		b.Run("peer="+p.Name, func(b *testing.B) {
			s := peers.Default()
			s.Delay = 0
			do := p.New(s)
			ctx, tool := context.Background(), s.Tools[0]
			calls := 0
			third := func(context.Context) (string, error) {
				if calls++; calls%3 != 0 {
					return "", errTool
				}
				return value, nil
			}

			b.ReportAllocs()
			for b.Loop() {
				if v, err := do(ctx, tool, third); err != nil || v != value {
					b.Fatal(v, err)
				}
			}

			if calls != 3*b.N {
				b.Fatalf("the tool was called %d times by %d calls", calls, b.N)
			}
		})
	}
}

// BenchmarkFailure measures a call that fails and isn't retried. The breaker counts it, but
// stays closed.
func BenchmarkFailure(b *testing.B) {
	for _, p := range peers.List {
		b.Run("peer="+p.Name, func(b *testing.B) {
			s := peers.Default()
			s.Retries = 0
			s.Failures = 1 << 26 // enough to stay closed; failsafe-go keeps a bit for each
			do := p.New(s)
			ctx, tool := context.Background(), s.Tools[0]
			fail := func(context.Context) (string, error) { return "", errTool }

			b.ReportAllocs()
			for b.Loop() {
				if _, err := do(ctx, tool, fail); !errors.Is(err, errTool) {
					b.Fatal(err)
				}
			}
		})
	}
}
