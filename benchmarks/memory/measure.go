package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// many is how many items are measured at once. With so many, the share of one item is exact to
// a few bytes.
const many = 10000

// usage is what the process takes, or one item of it.
type usage struct {
	heap, stack float64
	goroutines  float64
}

func currentUsage() usage {
	runtime.GC()
	runtime.GC() // finishes the sweep of the first one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// since returns the share of one of n items in what has been added since before.
func (u usage) since(before usage, n int) usage {
	return usage{
		heap:       (u.heap - before.heap) / float64(n),
		stack:      (u.stack - before.stack) / float64(n),
		goroutines: (u.goroutines - before.goroutines) / float64(n),
	}
}

// measure prints the figures of one row. The name is that of a peer, or "guard, not listed".
func measure(kind, name string) error {
	peerName, variant, _ := strings.Cut(name, ", ")
	found := peers.Only(peerName)
	if len(found) == 0 {
		return fmt.Errorf("there is no peer %q", peerName)
	}
	p := found[0]

	switch kind {
	case "tool":
		fresh, used := measureTools(p, variant == "not listed")
		fmt.Printf("%.0f %.0f\n", fresh, used)
	case "opened":
		measureOpened(p)
	case "flight":
		u, release := measureInFlight(p)
		printUsage(u)
		release()
	case "abandoned":
		u, release := measureAbandoned(p)
		printUsage(u)
		release()
	default:
		return fmt.Errorf("there is no measurement %q", kind)
	}
	return nil
}

func printUsage(u usage) { fmt.Printf("%.0f %.0f %.2f\n", u.heap, u.stack, u.goroutines) }

// measureTools returns the bytes of heap that a tool takes before its first call and after it.
func measureTools(p peers.Peer, unlisted bool) (fresh, used float64) {
	n := many
	if unlisted {
		n = 1024
	}
	names := toolNames(n)
	s := peers.Default()
	s.Tools = names
	if unlisted {
		s.Tools = nil
	}

	before := currentUsage()
	system := p.New(s)
	fresh = currentUsage().since(before, n).heap
	for _, name := range names {
		_, _ = system.Do(context.Background(), name, func(context.Context) (string, error) { return "", nil })
	}

	used = currentUsage().since(before, n).heap
	runtime.KeepAlive(system)
	runtime.KeepAlive(names)
	return fresh, used
}

// measureOpened prints what a tool takes after five failures, which open its breaker.
func measureOpened(p peers.Peer) {
	s := peers.Default()
	s.Retries = 0
	s.Tools = toolNames(many)

	before := currentUsage()
	system := p.New(s)
	broken := errors.New("the backend is broken")
	for _, name := range s.Tools {
		for range 5 {
			_, _ = system.Do(context.Background(), name, func(context.Context) (string, error) { return "", broken })
		}
	}

	fmt.Printf("%.0f\n", currentUsage().since(before, many).heap)
	runtime.KeepAlive(system)
	runtime.KeepAlive(s.Tools)
}

func toolNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "tool-" + strconv.Itoa(i)
	}
	return names
}

// measureInFlight returns what a call takes whose tool waits. The caller must call release.
func measureInFlight(p peers.Peer) (u usage, release func()) {
	s := peers.Default()
	s.Retries = 0
	do := p.New(s).Do
	w := newWaitingTool()

	before := currentUsage()
	w.callMany(do, s)
	w.arrived.Wait()
	time.Sleep(100 * time.Millisecond) // most callers wait for their tools by then
	return currentUsage().since(before, many), w.release
}

// measureAbandoned returns what is left of an abandoned call whose tool still waits. The
// caller must call release.
func measureAbandoned(p peers.Peer) (u usage, release func()) {
	s := peers.Default()
	s.Retries = 0
	s.Failures = 2 * many // so that the breaker rejects no call
	s.MaxAbandoned = 2 * many
	s.Timeout = 3 * time.Second // long enough for all calls to start
	do := p.New(s).Do
	w := newWaitingTool()

	before := currentUsage()
	w.callMany(do, s)
	w.arrived.Wait()
	w.returned.Wait()
	return currentUsage().since(before, many), w.release
}

// A waitingTool ignores its context and waits for release.
type waitingTool struct {
	end      chan struct{}
	arrived  sync.WaitGroup // of calls at the tool
	returned sync.WaitGroup // of callers
}

func newWaitingTool() *waitingTool { return &waitingTool{end: make(chan struct{})} }

func (w *waitingTool) run(context.Context) (string, error) {
	w.arrived.Done()
	<-w.end
	return "", nil
}

// callMany starts many calls of the tool, each on a goroutine.
func (w *waitingTool) callMany(do peers.Do, s peers.Settings) {
	w.arrived.Add(many)
	for range many {
		w.returned.Go(func() { _, _ = do(context.Background(), s.Tools[0], w.run) })
	}
}

// release lets the tool return and waits for the callers.
func (w *waitingTool) release() {
	close(w.end)
	w.returned.Wait()
}
