package main

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
)

// A bar is what the guard is held to in one case.
type bar struct {
	what      string
	settings  peers.Settings
	request   bool // the caller's context can end, as a request's can
	tool      func() peers.Tool
	guard     peers.Peer
	other     peers.Peer
	maxRatio  float64 // of the guard's time to that of the other
	maxAllocs float64 // of the guard
}

// A measurement is the outcome of one bar.
type measurement struct {
	ratio               float64
	allocs, otherAllocs float64
}

func (b bar) holds(m measurement) bool { return m.ratio <= b.maxRatio && m.allocs <= b.maxAllocs }

// measure measures the guard and the other in turn.
func (b bar) measure(rounds int, round time.Duration) measurement {
	ctx := context.Background()
	if b.request {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}

	mine, others := b.caller(ctx, b.guard), b.caller(ctx, b.other)
	n, otherN := calls(mine, round), calls(others, round)
	ratios := make([]float64, rounds)
	for i := range ratios {
		if i%2 == 0 { // neither is always the first
			t := perCall(mine, n)
			ratios[i] = t / perCall(others, otherN)
		} else {
			t := perCall(others, otherN)
			ratios[i] = perCall(mine, n) / t
		}
	}

	slices.Sort(ratios)
	return measurement{
		ratio:       (ratios[(rounds-1)/2] + ratios[rounds/2]) / 2,
		allocs:      testing.AllocsPerRun(1000, mine),
		otherAllocs: testing.AllocsPerRun(1000, others),
	}
}

// caller returns one call of a peer.
func (b bar) caller(ctx context.Context, p peers.Peer) func() {
	do, fn := p.New(b.settings), b.tool()
	name := b.settings.Tools[0]
	return func() { _, _ = do(ctx, name, fn) }
}

// calls returns how many calls take about as long as a round.
func calls(call func(), round time.Duration) int {
	for n := 1; ; n *= 2 {
		if perCall(call, n)*float64(n) >= float64(round) {
			return n
		}
	}
}

// perCall returns how many nanoseconds of processor time each of n calls takes. Other processes don't take part
// in that, as they do in real time, but the collection of garbage does.
func perCall(call func(), n int) float64 {
	start := processorTime()
	for range n {
		call()
	}
	return float64(processorTime()-start) / float64(n)
}

// processorTime returns how long this process has been running on processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
