// Chaos drives two MCP servers through the same outage of their backend, one under a
// guard and one without, and draws what became of the calls.
//
//	go run -C examples ./chaos -o ../docs/chaos.svg
//
// The backend is a real HTTP server that slows down, hangs, dies and comes back, in real
// time. Times are a twentieth of usual ones: clients give up after 3s instead of 60s, the
// tool's limit is 500ms instead of 10s, and the breaker's cooldown 1.5s instead of 30s.
// The load comes from the seed.
//
// It shows what the guard costs, too: calls that are slower than the limit fail, and once
// the backend is back calls are refused until the next probe. The program ends with status
// 1 if the guarded server didn't do what we claim.
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

// A config is what the flags say.
type config struct {
	out                             string
	seed                            uint64
	agents                          int
	rate                            float64 // calls of each agent, per second
	limit, cooldown, patience       time.Duration
	healthy, slow, hang, dead, back time.Duration // how long the phases last
}

const (
	maxDuration = 10 * time.Minute
	maxCalls    = 5000 // more can't be told apart in the picture, and make it large
)

var errClaims = errors.New("the guarded server didn't do what we claim")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	cfg, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	phases := outage(cfg)
	fmt.Fprintf(stdout, "This takes %v.\n\n", phases[len(phases)-1].to)
	unguarded, guarded, err := drive(ctx, cfg)
	if err != nil {
		return err
	}
	var svg bytes.Buffer
	if err := picture(&svg, cfg, unguarded, guarded); err != nil {
		return err
	}
	if err := os.WriteFile(cfg.out, svg.Bytes(), 0o644); err != nil {
		return fmt.Errorf("-o %q: %w", cfg.out, err)
	}
	if err := table(stdout, cfg, unguarded, guarded); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nThe picture is in %s.\n", cfg.out)
	if broken := claims(cfg, unguarded, guarded); len(broken) > 0 {
		return fmt.Errorf("%w:\n  %s", errClaims, strings.Join(broken, "\n  "))
	}
	return nil
}

// parse reads and checks the flags. Its errors name the flag and its value.
func parse(args []string, stdout io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is shown once, by main
	flags.StringVar(&cfg.out, "o", "chaos.svg", "the `file` that the picture is written to")
	flags.Uint64Var(&cfg.seed, "seed", 1, "where the load comes from")
	flags.IntVar(&cfg.agents, "agents", 8, "how many agents call each server")
	flags.Float64Var(&cfg.rate, "rate", 2, "how many calls each agent makes in a second")
	var durations []string
	duration := func(d *time.Duration, name string, value time.Duration, usage string) {
		flags.DurationVar(d, name, value, usage)
		durations = append(durations, name)
	}
	duration(&cfg.limit, "limit", 500*time.Millisecond, "the guarded tool's limit")
	duration(&cfg.cooldown, "cooldown", 1500*time.Millisecond, "how long the breaker stays open")
	duration(&cfg.patience, "client-timeout", 3*time.Second, "when the agents' clients give up on a call")
	duration(&cfg.healthy, "healthy", 4*time.Second, "how long the backend is healthy")
	duration(&cfg.slow, "slow", 3*time.Second, "how long it is slow then")
	duration(&cfg.hang, "hang", 5*time.Second, "how long it hangs then")
	duration(&cfg.dead, "dead", 5*time.Second, "how long it is dead then")
	duration(&cfg.back, "back", 6*time.Second, "how long it is back at last")
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

	var bad []error
	reject := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }
	for _, name := range durations {
		f := flags.Lookup(name)
		if d := f.Value.(flag.Getter).Get().(time.Duration); d <= 0 || d > maxDuration {
			reject("-%s %v: must be above 0 and at most %v", name, d, maxDuration)
		}
	}
	if cfg.agents < 1 || cfg.agents > maxCalls {
		reject("-agents %d: must be from 1 to %d", cfg.agents, maxCalls)
	}
	if !(cfg.rate > 0 && cfg.rate <= maxCalls) { // not a number, too
		reject("-rate %v: must be above 0 and at most %d", cfg.rate, maxCalls)
	}
	if len(bad) == 0 && cfg.limit >= cfg.patience {
		reject("-client-timeout %v: must be above -limit %v, or no client hears of it", cfg.patience, cfg.limit)
	}
	phases := outage(cfg)
	total := phases[len(phases)-1].to
	if n := float64(cfg.agents) * cfg.rate * total.Seconds(); len(bad) == 0 && n > maxCalls {
		reject("-agents %d, -rate %v: make about %.0f calls in %v; at most %d", cfg.agents, cfg.rate, n, total, maxCalls)
	}
	if err := writable(cfg.out); err != nil {
		reject("-o %q: %w", cfg.out, err)
	}
	return cfg, errors.Join(bad...)
}

// writable finds out before the run whether its picture can be written, and leaves no
// trace.
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
