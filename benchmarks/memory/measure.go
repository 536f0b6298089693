package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// many is enough to make one item's share exact to a few bytes.
const many = 10000

// usage is what the process takes.
type usage struct {
	heap, stack float64
	goroutines  float64
}

func now() usage {
	runtime.GC()
	runtime.GC() // what the first one found dead is swept by now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// since returns what one of n items takes.
func (u usage) since(before usage, n int) usage {
	return usage{
		heap:       (u.heap - before.heap) / float64(n),
		stack:      (u.stack - before.stack) / float64(n),
		goroutines: (u.goroutines - before.goroutines) / float64(n),
	}
}

// measure prints the figures of one row.
func measure(kind, name string) error {
	peerName, how, _ := strings.Cut(name, ", ")
	found := peers.Only(peerName)
	if len(found) == 0 {
		return fmt.Errorf("there is no peer %q", peerName)
	}
	p := found[0]
	switch kind {
	case "tool":
		tools(p, how == "not listed")
	case "flight":
		u, release := inFlight(p)
		print3(u)
		release()
	case "abandoned":
		u, release := abandoned(p)
		print3(u)
		release()
	default:
		return fmt.Errorf("there is no measurement %q", kind)
	}
	return nil
}

func print3(u usage) { fmt.Printf("%.0f %.0f %.2f\n", u.heap, u.stack, u.goroutines) }

// tools measures many tools that do nothing.
func tools(p peers.Peer, unlisted bool) {
	n := many
	if unlisted {
		n = 1024
	}
	names := make([]string, n)
	for i := range names {
		names[i] = "tool-" + strconv.Itoa(i)
	}
	s := peers.Default()
	s.Tools = names
	if unlisted {
		s.Tools = nil
	}
	before := now()
	system := p.New(s)
	fresh := now().since(before, n)
	for _, name := range names {
		_, _ = system.Do(context.Background(), name, func(context.Context) (string, error) { return "", nil })
	}
	used := now().since(before, n)
	fmt.Printf("%.0f %.0f\n", fresh.heap, used.heap)
	runtime.KeepAlive(system)
	runtime.KeepAlive(names)
}

// inFlight measures many calls at once whose tool waits.
func inFlight(p peers.Peer) (u usage, release func()) {
	s := peers.Default()
	s.Retries = 0
	do := p.New(s).Do
	w := newWaiting()
	before := now()
	w.call(do, s)
	w.arrived.Wait()
	time.Sleep(100 * time.Millisecond) // for the callers, who are about to wait
	return now().since(before, many), w.release
}

// abandoned measures what is left of calls that were given up on.
func abandoned(p peers.Peer) (u usage, release func()) {
	s := peers.Default()
	s.Retries = 0
	s.Failures = 2 * many // none is turned away
	s.MaxAbandoned = 2 * many
	s.Limit = 3 * time.Second // all have started by then
	do := p.New(s).Do
	w := newWaiting()
	before := now()
	w.call(do, s)
	w.arrived.Wait()
	w.returned.Wait()
	return now().since(before, many), w.release
}

// waiting is a tool that ignores its context, and its callers.
type waiting struct {
	end      chan struct{}
	arrived  sync.WaitGroup
	returned sync.WaitGroup
}

func newWaiting() *waiting { return &waiting{end: make(chan struct{})} }

func (w *waiting) tool(context.Context) (string, error) {
	w.arrived.Done()
	<-w.end
	return "", nil
}

func (w *waiting) call(do peers.Do, s peers.Settings) {
	w.arrived.Add(many)
	for range many {
		w.returned.Go(func() { _, _ = do(context.Background(), s.Tools[0], w.tool) })
	}
}

// release lets the tool go, and waits for the callers.
func (w *waiting) release() {
	close(w.end)
	w.returned.Wait()
}
