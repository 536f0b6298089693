package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"syscall"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file is the model of the load test: what tools and callers do, as tables.

// A dice decides what happens. Its durations are whole units, so that things often happen at the same moment.
type dice struct {
	*rand.Rand
	unit time.Duration
}

func (d dice) upTo(n int) time.Duration { return time.Duration(1+d.IntN(n)) * d.unit }

// A row of a table is drawn as often as its weight says.
type row[T any] struct {
	name   string
	weight int
	what   T
}

func draw[T any](d dice, table []row[T], allowed func(T) bool) row[T] {
	var rows []row[T]
	total := 0
	for _, r := range table {
		if allowed == nil || allowed(r.what) {
			rows = append(rows, r)
			total += r.weight
		}
	}

	n := d.IntN(total)
	for n >= rows[0].weight {
		n -= rows[0].weight
		rows = rows[1:]
	}
	return rows[0]
}

// Nothing that happens to the calls of blameless is its fault, so its breaker must stay closed.
const blameless = "blameless"

// soakTools are the tools that the guard lists.
func soakTools(unit time.Duration) map[string]resilience.Tool {
	return map[string]resilience.Tool{
		"read":        {Timeout: 20 * unit, Effect: resilience.ReadOnly},
		"attempts":    {Timeout: 20 * unit, Effect: resilience.ReadOnly, AttemptTimeout: 8 * unit},
		"put":         {Timeout: 20 * unit, Effect: resilience.Idempotent, Breaker: "backend"},
		"write":       {Timeout: 20 * unit, Effect: resilience.NonIdempotent, Breaker: "backend"},
		"unknown":     {Timeout: 20 * unit},
		"cooperative": {Timeout: 20 * unit, Effect: resilience.ReadOnly, Cooperative: true},
		"long":        {Timeout: 10 * unit, MaxTimeout: 60 * unit, Effect: resilience.ReadOnly, Breaker: "backend"},
		blameless:     {Timeout: 1_000_000 * unit, Effect: resilience.ReadOnly},
	}
}

// The names that are called. Two aren't listed.
var soakNames = []string{
	"read", "read", "attempts", "attempts", "put", "put", "write", "write", "unknown", "unknown", "cooperative",
	"cooperative", "long", "long", blameless, blameless, "made-up", "unlisted", "",
}

func (d dice) name() string { return soakNames[d.IntN(len(soakNames))] }

// What callers do.
var soakCallers = []row[func(dice) caller]{
	{"stays", 60, func(dice) caller { return context.WithCancel }},
	{"leaves", 20, func(d dice) caller { return leavingAfter(d.upTo(30)) }},
	{"brings a deadline", 16, func(d dice) caller { return withTimeout(d.upTo(30)) }},
	{"comes too late", 2, func(dice) caller { return withTimeout(-1) }},
	{"has left", 2, func(dice) caller { return leavingAfter(0) }},
}

// A behaviour is what the function of a tool does: step by step, until one returns an error. If it is a fault of the
// tool, blameless doesn't do it. Each behaviour comes to an end by itself.
type behaviour struct {
	fault bool
	steps []step
}

type step = func(*attempt) error

func harmless(s ...step) behaviour { return behaviour{steps: s} }
func fault(s ...step) behaviour    { return behaviour{true, s} }

var behaviours []row[behaviour]

func init() { // because functions call tools, whose functions have a behaviour
	behaviours = []row[behaviour]{
		{"succeeds", 30, harmless()},
		{"fails", 25, harmless(fail)}, // the tool blameless only in ways that are no fault
		{"panics", 3, fault(crash)},
		{"exits", 6, fault(leave)},
		{"works and succeeds", 25, harmless(work(15))},
		{"works and fails", 10, harmless(work(15), fail)},
		{"hangs and succeeds", 5, harmless(hangs(60))},
		{"hangs and fails", 5, harmless(hangs(60), fail)},
		{"works until its end", 5, harmless(work(100))},
		{"succeeds at its end", 3, harmless(outlast)},
		{"fails at its end", 5, harmless(outlast, fail)},
		{"hangs at its end", 2, harmless(outlast, hangs(30))},
		{"reports progress", 5, harmless(work(12), progress, work(12), progress, work(12), progress, work(12))},
		{"pauses", 5, harmless(work(12), pause, work(30), resume, work(12))},
		{"forgets to resume", 3, harmless(pause, work(30))},
		{"calls itself", 3, fault(callItself)},
		{"calls another tool", 5, fault(callAnother)},
		{"calls a tool and cancels that", 3, fault(callAndCancel)},
	}
}

// work takes up to n units, or until the context ends.
func work(n int) step {
	return func(a *attempt) error {
		select {
		case <-due(a.upTo(n)):
			return nil
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
}

// hangs ignores the context for up to n units.
func hangs(n int) step {
	return func(a *attempt) error { time.Sleep(a.upTo(n)); return nil }
}

// outlast waits for the end of the context, but not for long.
func outlast(a *attempt) error { _ = work(100)(a); return nil }

func crash(a *attempt) error { a.trace = errors.New("panic"); panic(a.trace) }

// leave ends the goroutine, but only that of a first attempt, because later ones look the same.
func leave(a *attempt) error {
	if a.n > 1 {
		return crash(a)
	}
	runtime.Goexit()
	return nil
}

func progress(a *attempt) error { resilience.ReportProgress(a.ctx); return nil }
func resume(a *attempt) error   { a.resume(); a.resume(); return nil }

func pause(a *attempt) error {
	a.extend(30 * a.unit)
	a.resume = resilience.Pause(a.ctx)
	return nil
}

func callItself(a *attempt) error  { return a.call(a.ctx, a.tool) }
func callAnother(a *attempt) error { return a.call(a.ctx, a.name()) }

func callAndCancel(a *attempt) error {
	ctx, cancel := leavingAfter(a.upTo(10))(a.ctx)
	defer cancel()
	return a.call(ctx, a.name())
}

// A soakFailure is an error that a function returns. Each error is a new one, by which it is found again.
type soakFailure struct {
	kind kind
	err  func() error
}

type kind uint8

const (
	ambiguous kind = iota // the function may have done something
	noEffect              // the function certainly did nothing
	noFault               // of the tool
)

var soakFailures = []row[soakFailure]{
	{"an error", 20, soakFailure{ambiguous, func() error { return errors.New("failed") }}},
	{"transient", 5, soakFailure{noEffect, func() error { return resilience.MarkTransient(errBoom) }}},
	{"permanent", 5, soakFailure{ambiguous, func() error { return resilience.MarkPermanent(errBoom) }}},
	{"invalid", 5, soakFailure{noFault, func() error { return resilience.MarkInvalid(errBoom) }}},
	{"unfinished", 5, soakFailure{noFault, func() error { return fmt.Errorf("%w", resilience.ErrUnfinished) }}},
	{"busy", 5, soakFailure{ambiguous, func() error {
		return &resilience.Error{Code: "BUSY", Message: "Busy.", Retryable: true, RetryAfter: 5 * time.Millisecond}
	}}},
	{"a TIMEOUT", 3, soakFailure{ambiguous, func() error { return resilience.TimeoutError("other", 1) }}},
	{"a CANCELED", 3, soakFailure{noFault, func() error { return &resilience.Error{Code: resilience.CodeCanceled} }}},
	{"a rejection", 3, soakFailure{noFault, func() error { return resilience.CircuitOpenError("other", time.Hour) }}},
	{"a canceled part", 3, soakFailure{ambiguous, func() error { return fmt.Errorf("%w", context.Canceled) }}},
	{"a deadline", 3, soakFailure{ambiguous, func() error { return fmt.Errorf("%w", context.DeadlineExceeded) }}},
	{"refused", 5, soakFailure{noEffect, func() error { return fmt.Errorf("dial: %w", syscall.ECONNREFUSED) }}},
	{"reset", 5, soakFailure{ambiguous, func() error { return fmt.Errorf("read: %w", syscall.ECONNRESET) }}},
	{"one refused", 5, soakFailure{ambiguous, func() error { return errors.Join(syscall.ECONNREFUSED, io.EOF) }}},
}

// fail returns an error, of blameless one that is no fault.
func fail(a *attempt) error {
	f := draw(a.dice, soakFailures, func(f soakFailure) bool { return f.kind == noFault || a.tool != blameless }).what
	a.noEffect = f.kind == noEffect
	return f.err()
}
