package benchmarks

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// BenchmarkParallel measures one tool, and thus one breaker, that many goroutines call.
func BenchmarkParallel(b *testing.B) {
	for _, procs := range []int{1, 2} {
		for _, goroutines := range []int{1, 10, 100, 1000, 10000} {
			for _, p := range peers.Few {
				name := fmt.Sprintf("procs=%d/goroutines=%d/peer=%s", procs, goroutines, p.Name)
				b.Run(name, func(b *testing.B) {
					before := runtime.GOMAXPROCS(procs)
					defer runtime.GOMAXPROCS(before)
					benchmarkParallel(b, goroutines, p, peers.Default())
				})
			}
		}
	}
}

// BenchmarkContention is meant to be run with a mutex profile and a block profile. Its 10,000
// goroutines call one tool, or a thousand tools of which ten goroutines share each. A lock
// that is still contended with a thousand tools is one that all tools share.
func BenchmarkContention(b *testing.B) {
	for _, n := range []int{1, 1000} {
		for _, p := range peers.Few {
			b.Run(fmt.Sprintf("goroutines=10000/tools=%d/peer=%s", n, p.Name), func(b *testing.B) {
				s := peers.Default()
				s.Tools = toolNames(n)
				benchmarkParallel(b, 10000, p, s)
			})
		}
	}
}

// benchmarkParallel divides b.N calls between goroutines, each of which calls one tool. It
// takes the place of b.RunParallel, whose number of goroutines is a multiple of GOMAXPROCS.
func benchmarkParallel(b *testing.B, goroutines int, p peers.Peer, s peers.Settings) {
	do := p.New(s).Do
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
				s.Tools = toolNames(n)
				do := p.New(s).Do
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

func toolNames(n int) []string {
	tools := make([]string, n)
	for i := range tools {
		tools[i] = "tool-" + strconv.Itoa(i)
	}
	return tools
}
