// Chaos takes three MCP servers through the same outage of their backend, and draws how their calls ended: one
// without a guard, one with a guard, and one whose guard also asks the backend by a Probe.
//
//	go run -C examples ./chaos -o chaos.svg
//
// The backend is an HTTP server that slows down, hangs, dies and comes back. The seed determines
// the calls. The program works in real time over TCP, 20 times as fast as its
// flags say unless -speed says otherwise: it takes 24 seconds, clients give up after 3s,
// the tool's timeout is 500ms, the breaker's cooldown 1.5s, and Probes are 50ms apart.
//
// docs/chaos.svg is drawn by TestPicture. The same code runs
// there at -speed 1, in the fake time of a testing/synctest bubble and over a network in
// memory, so each run draws the same. The test compares the picture, and "make chaos"
// rewrites it.
//
// The picture shows what the guard costs, too: calls that are slower than the timeout
// fail, and once the backend is back, calls are rejected until the next probe. The program
// ends with status 1 if the guarded servers didn't do what we claim.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

// A config holds the values of the flags, except speed, by which parse has divided all
// durations.
type config struct {
	out                              string
	seed                             uint64
	agents                           int
	every                            time.Duration // between an agent's calls, on average
	timeout, cooldown, clientTimeout time.Duration
	probeInterval                    time.Duration
	healthy, slow, hang, dead, back  time.Duration // how long the phases last
}

const (
	minDuration = time.Millisecond
	maxDuration = 10 * time.Minute
	maxSpeed    = 1000
	maxCalls    = 5000 // more are indistinguishable in the picture, and make it large
)

var errClaims = errors.New("the guarded servers didn't do what we claim")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &loopback{}, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, network network, args []string, stdout io.Writer) error {
	cfg, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}

	fmt.Fprintf(stdout, "The outage lasts %v.\n\n", length(cfg))
	all, err := drive(ctx, cfg, network)
	if err != nil {
		return err
	}

	var svg bytes.Buffer
	if err := picture(&svg, cfg, all); err != nil {
		return err
	}
	if err := os.WriteFile(cfg.out, svg.Bytes(), 0o644); err != nil {
		return fmt.Errorf("-o %q: %w", cfg.out, err)
	}
	if err := table(stdout, cfg, all); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nThe picture is in %s.\n", cfg.out)

	if broken := claims(cfg, all); len(broken) > 0 {
		return fmt.Errorf("%w:\n  %s", errClaims, strings.Join(broken, "\n  "))
	}
	return nil
}

// parse reads and checks the flags. Its errors name the flag and its value.
func parse(args []string, stdout io.Writer) (config, error) {
	var cfg config
	var speed int
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints errors, once
	flags.StringVar(&cfg.out, "o", "chaos.svg", "the `file` that the picture is written to")
	flags.Uint64Var(&cfg.seed, "seed", 1, "the seed of the calls")
	flags.IntVar(&cfg.agents, "agents", 8, "how many agents call each server")
	flags.IntVar(&speed, "speed", 20, "the divisor of all durations")

	var durations []durationFlag
	duration := func(d *time.Duration, name string, value time.Duration, usage string) {
		flags.DurationVar(d, name, value, usage)
		durations = append(durations, durationFlag{name, d})
	}
	duration(&cfg.every, "every", 10*time.Second, "how often each agent makes a call")
	duration(&cfg.timeout, "timeout", 10*time.Second, "the guarded tool's timeout")
	duration(&cfg.cooldown, "cooldown", 30*time.Second, "how long the breaker stays open")
	duration(&cfg.probeInterval, "probe-interval", time.Second, "how far apart the Probes of the open breaker are")
	duration(&cfg.clientTimeout, "client-timeout", time.Minute, "when the agents' clients give up on a call")
	duration(&cfg.healthy, "healthy", time.Minute, "how long the backend is healthy at first")
	duration(&cfg.slow, "slow", time.Minute, "how long it is slow then")
	duration(&cfg.hang, "hang", 2*time.Minute, "how long it hangs then")
	duration(&cfg.dead, "dead", 2*time.Minute, "how long it is dead then")
	duration(&cfg.back, "back", 2*time.Minute, "how long it is back in the end")

	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stdout)
		flags.Usage()
		return config{}, err
	case err != nil:
		return config{}, err
	case flags.NArg() > 0:
		return config{}, fmt.Errorf("there are no arguments, only flags: %q", flags.Args())
	}

	if err := check(cfg, speed, durations); err != nil {
		return config{}, err
	}
	for _, d := range durations {
		*d.value /= time.Duration(speed)
	}
	return cfg, nil
}

type durationFlag struct {
	name  string
	value *time.Duration
}

// check returns an error for each flag with a value that it can't have.
func check(cfg config, speed int, durations []durationFlag) error {
	var bad []error
	reject := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }

	for _, d := range durations {
		if *d.value < minDuration || *d.value > maxDuration {
			reject("-%s %v: must be from %v to %v", d.name, *d.value, minDuration, maxDuration)
		}
	}
	if cfg.agents < 1 || cfg.agents > maxCalls {
		reject("-agents %d: must be from 1 to %d", cfg.agents, maxCalls)
	}
	if speed < 1 || speed > maxSpeed {
		reject("-speed %d: must be from 1 to %d", speed, maxSpeed)
	}
	if err := writable(cfg.out); err != nil {
		reject("-o %q: %w", cfg.out, err)
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}

	if cfg.timeout >= cfg.clientTimeout {
		reject("-client-timeout %v: must be above -timeout %v, or no client receives the guard's errors",
			cfg.clientTimeout, cfg.timeout)
	}
	if n := float64(cfg.agents) * float64(length(cfg)) / float64(cfg.every); n > maxCalls {
		reject("-agents %d, -every %v: make about %.0f calls in %v; at most %d",
			cfg.agents, cfg.every, n, length(cfg), maxCalls)
	}
	return errors.Join(bad...)
}

// writable returns an error if no picture can be written to path. It leaves no file behind.
func writable(path string) error {
	_, err := os.Stat(path)
	isNew := errors.Is(err, os.ErrNotExist)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	err = f.Close()
	if isNew {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
