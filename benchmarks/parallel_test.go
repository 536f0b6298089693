package benchmarks

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// BenchmarkParallel measures one tool, and thus one breaker, that many goroutines call, or a thousand tools of which
// ten goroutines share each. A lock that is still contended with a thousand tools is one that all tools share.
func BenchmarkParallel(b *testing.B) {
	for _, c := range []struct{ goroutines, tools int }{{1, 1}, {100, 1}, {10000, 1}, {10000, 1000}} {
		for _, p := range peers.Few {
			b.Run(fmt.Sprintf("goroutines=%d/tools=%d/peer=%s", c.goroutines, c.tools, p.Name), func(b *testing.B) {
				s := peers.Default()
				s.Tools = peers.ToolNames(c.tools)
				benchmarkParallel(b, c.goroutines, p, s)
			})
		}
	}
}

// benchmarkParallel divides b.N calls between goroutines, each of which calls one tool. It
// takes the place of b.RunParallel, whose number of goroutines is a multiple of GOMAXPROCS.
func benchmarkParallel(b *testing.B, goroutines int, p peers.Peer, s peers.Settings) {
	do := p.New(s)
	ctx := context.Background()
	start := make(chan struct{})
	failed := make(chan error, goroutines)

	var ready, finished sync.WaitGroup
	for g := range goroutines {
		n := b.N / goroutines
		if g < b.N%goroutines {
			n++
		}
		tool := s.Tools[g%len(s.Tools)]

		ready.Add(1)
		finished.Go(func() {
			_, _ = do(ctx, tool, done) // grows the goroutine's stack
			ready.Done()
			<-start
			for range n {
				if v, err := do(ctx, tool, done); err != nil || v != value {
					failed <- fmt.Errorf("got %q and error %v", v, err)
					return
				}
			}
		})
	}
	ready.Wait()

	b.ReportAllocs()
	b.ResetTimer()
	close(start)
	finished.Wait()
	b.StopTimer()

	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
}

// BenchmarkTools measures sequential calls of one tool, or of a thousand in turn.
func BenchmarkTools(b *testing.B) {
	for _, n := range []int{1, 1000} {
		for _, p := range peers.Few {
			b.Run(fmt.Sprintf("tools=%d/peer=%s", n, p.Name), func(b *testing.B) {
				s := peers.Default()
				s.Tools = peers.ToolNames(n)
				do := p.New(s)
				ctx := context.Background()

				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if v, err := do(ctx, s.Tools[i%n], done); err != nil || v != value {
						b.Fatal(v, err)
					}
				}
			})
		}
	}
}
