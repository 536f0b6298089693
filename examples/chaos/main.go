// Chaos takes three MCP servers through the same outage of their backend, and draws how their calls ended: one
// without a guard, one with a guard, and one whose guard also asks the backend by a Probe.
//
//	go run -C examples ./chaos -o chaos.svg
//
// The backend is an HTTP server that slows down, hangs, dies and comes back. The program works in real time over TCP.
// With -speed 20, its default, clients give up after 3s, the tool's timeout is 500ms, and it takes 24 seconds.
//
// docs/chaos.svg is drawn by TestPicture. The same code runs there at -speed 1, in the fake time of a testing/synctest
// bubble and over a network in memory.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	out := flag.String("o", "chaos.svg", "the `file` that the picture is written to")
	seed := flag.Uint64("seed", 1, "the seed of the calls")
	speed := flag.Int("speed", 20, "the divisor of all durations")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &loopback{}, *seed, *speed, *out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, network network, seed uint64, speed int, path string, stdout io.Writer) error {
	if speed < 1 {
		return fmt.Errorf("-speed %d: must be at least 1", speed)
	}
	cfg := newConfig(seed, speed)
	fmt.Fprintf(stdout, "The outage lasts %v.\n\n", cfg.end())
	all, err := drive(ctx, cfg, network)
	if err != nil {
		return err
	}

	var svg bytes.Buffer
	if err := picture(&svg, cfg, all); err != nil {
		return err
	}
	if err := os.WriteFile(path, svg.Bytes(), 0o644); err != nil {
		return err
	}
	return table(stdout, cfg, all)
}
