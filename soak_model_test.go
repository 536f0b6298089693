package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file is the model of the load test: what tools, callers and connections do, as tables.

// A dice decides what happens. Its durations are whole units, which are milliseconds in real time and seconds in fake
// time, so that things often happen at the same moment.
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

func draw[T any](d dice, table []row[T], allowed func(row[T]) bool) row[T] {
	var rows []row[T]
	total := 0
	for _, r := range table {
		if allowed(r) {
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

func anyRow[T any](row[T]) bool { return true }

const (
	blameless = "blameless" // nothing that happens to its calls is its fault, so its breaker must stay closed
	remote    = "remote"    // uses the connection

	madeUp      = "made-up-" // and a number below madeUpNames
	madeUpNames = 50
)

var longName = strings.Repeat("long", 100)

// soakTools are the tools that both guards list.
func soakTools(unit time.Duration) map[string]resilience.Tool {
	return map[string]resilience.Tool{
		"read":        {Timeout: 20 * unit, Effect: resilience.ReadOnly},
		"put":         {Timeout: 20 * unit, Effect: resilience.Idempotent, Breaker: "backend"},
		"write":       {Timeout: 20 * unit, Effect: resilience.NonIdempotent, Breaker: "backend"},
		"unknown":     {Timeout: 20 * unit},
		"cooperative": {Timeout: 20 * unit, Effect: resilience.ReadOnly, Cooperative: true},
		"long":        {Timeout: 10 * unit, MaxTimeout: 60 * unit, Effect: resilience.ReadOnly, Breaker: "backend"},
		remote:        {Timeout: 20 * unit, Effect: resilience.NonIdempotent},
		blameless:     {Timeout: 1_000_000 * unit, Effect: resilience.ReadOnly},
	}
}

var listedNames = []string{"read", "put", "write", "unknown", "cooperative", "long"}

// The names that are called.
var toolNames = []row[func(*soak, dice) string]{
	{"a listed tool", 70, func(_ *soak, d dice) string { return listedNames[d.IntN(len(listedNames))] }},
	{"the remote tool", 10, func(*soak, dice) string { return remote }},
	{"the blameless tool", 10, func(*soak, dice) string { return blameless }},
	{"a made-up name", 10, func(_ *soak, d dice) string { return fmt.Sprint(madeUp, d.IntN(madeUpNames)) }},
	{"a new name", 5, func(s *soak, _ dice) string { return fmt.Sprint("new-", s.newNames.Add(1)) }},
	{"a long name", 3, func(*soak, dice) string { return longName }},
	{"no name", 1, func(*soak, dice) string { return "" }},
}

// What callers do.
var callers = []row[func(dice) caller]{
	{"stays", 60, func(dice) caller { return context.WithCancel }},
	{"leaves", 20, func(d dice) caller { return leavingAfter(d.upTo(30)) }},
	{"has left already", 2, func(dice) caller { return hasLeft }},
	{"brings a deadline", 16, func(d dice) caller { return withTimeout(d.upTo(30)) }},
	{"comes too late", 2, func(dice) caller { return withTimeout(-1) }},
}

func hasLeft(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

// The ways to call. Only All makes several calls, and takes no options.
var entries = []row[func(context.Context, []*record)]{
	{"Do", 1, func(ctx context.Context, rs []*record) { rs[0].receive(func() answer { return rs[0].do(ctx) }) }},
	{"Run", 1, func(ctx context.Context, rs []*record) { rs[0].receive(func() answer { return rs[0].run(ctx) }) }},
	{"Wrap", 1, func(ctx context.Context, rs []*record) { rs[0].receive(func() answer { return rs[0].wrap(ctx) }) }},
	{"All", 1, func(ctx context.Context, rs []*record) {
		for i, a := range all(ctx, rs) {
			rs[i].receive(func() answer { return a })
		}
	}},
}

// What callers ask for.
var requests = []row[func(*record, dice)]{
	{"nothing", 70, func(*record, dice) {}},
	{"a Timeout", 18, func(r *record, d dice) { r.timeout = d.upTo(40) }},
	{"a Timeout that isn't positive", 1, func(r *record, _ dice) { r.timeout = -1 }},
	{"Debug and Args", 10, func(r *record, _ dice) { r.debug = true }},
	{"a function that is nil", 1, func(r *record, _ dice) { r.noFunc = true }},
}

// A behaviour is what the function of a tool does: step by step, until one returns an error. If it is a fault of the
// tool, the tool blameless doesn't do it. Each behaviour comes to an end by itself.
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
		{"hangs and panics", 1, fault(hangs(60), crash)},
		{"hangs and exits", 1, fault(hangs(60), leave)},
		{"works until its end", 5, harmless(work(100))},
		{"succeeds at its end", 3, harmless(outlast)},
		{"fails at its end", 5, harmless(outlast, fail)},
		{"hangs at its end", 2, harmless(outlast, hangs(30))},
		{"reports progress", 5, harmless(work(12), progress, work(12), progress, work(12), progress, work(12))},
		{"pauses", 5, harmless(work(12), pause, work(30), resume, work(12))},
		{"forgets to resume", 3, harmless(pause, work(30))},
		{"calls itself", 3, fault(callItself)},
		{"calls another tool", 5, fault(callAnother)},
		{"calls another guard", 3, fault(callOtherGuard)},
		{"calls a tool that may outlive it", 3, fault(callWithoutCancel)},
		{"calls a tool and cancels that", 3, fault(callAndCancel)},
	}
}

func drawBehaviour(a *attempt) row[behaviour] {
	if a.tool == remote {
		return row[behaviour]{"uses the connection", 1, harmless(useConnection)}
	}
	return draw(a.dice, behaviours, func(b row[behaviour]) bool { return a.tool != blameless || !b.what.fault })
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
	return func(a *attempt) error { a.guard.sleep(a.upTo(n)); return nil }
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

func callItself(a *attempt) error  { return a.call(a.ctx, a.guard, a.tool) }
func callAnother(a *attempt) error { return a.call(a.ctx, a.guard, a.guard.drawName(a.dice)) }
func callOtherGuard(a *attempt) error {
	return a.call(a.ctx, a.guard.other(), a.guard.drawName(a.dice))
}

func callWithoutCancel(a *attempt) error {
	return a.call(context.WithoutCancel(a.ctx), a.guard, a.guard.drawName(a.dice))
}

func callAndCancel(a *attempt) error {
	ctx, cancel := leavingAfter(a.upTo(10))(a.ctx)
	defer cancel()
	return a.call(ctx, a.guard, a.guard.drawName(a.dice))
}

// useConnection is what the tool remote does.
func useConnection(a *attempt) error {
	get := a.guard.connector.Get
	if a.IntN(2) == 0 {
		get = a.guard.connector.Wait
	}

	conn, err := get(a.ctx)
	if err != nil {
		a.noEffect = errors.Is(err, resilience.CodeConnectionLost)
		return err
	}
	if a.IntN(10) == 0 {
		a.guard.connector.ReportLost(conn, errBoom)
		return fail(a)
	}
	return work(10)(a)
}

// A failure is a kind of error that a function returns. Each error is a new one, by which it is found again.
type failure struct {
	kind kind
	err  func(*attempt) error
}

type kind uint8

const (
	ambiguous kind = iota // the function may have done something
	noEffect              // the function certainly did nothing
	noFault               // of the tool
	opaque                // another error takes its place, because it can't be examined
)

var failures = []row[failure]{
	{"an error", 20, failure{ambiguous, func(*attempt) error { return errors.New("failed") }}},
	{"marked as transient", 5, failure{noEffect, func(*attempt) error { return resilience.MarkTransient(errBoom) }}},
	{"marked as permanent", 5, failure{ambiguous, func(*attempt) error { return resilience.MarkPermanent(errBoom) }}},
	{"marked as invalid", 5, failure{noFault, func(*attempt) error { return resilience.MarkInvalid(errBoom) }}},
	{"unfinished", 5, failure{noFault, func(*attempt) error { return fmt.Errorf("%w", resilience.ErrUnfinished) }}},
	{"busy", 5, failure{ambiguous, func(a *attempt) error {
		return &resilience.Error{Code: "BUSY", Message: "Busy.", Retryable: true, RetryAfter: a.upTo(5)}
	}}},
	{"a TIMEOUT", 3, failure{ambiguous, func(*attempt) error { return resilience.TimeoutError("other", 1) }}},
	{"a CANCELED", 3, failure{noFault, func(*attempt) error {
		return &resilience.Error{Code: resilience.CodeCanceled}
	}}},
	{"a rejection", 3, failure{noFault, func(*attempt) error {
		return resilience.CircuitOpenError("other", time.Hour)
	}}},
	{"a canceled context", 3, failure{ambiguous, func(*attempt) error { return fmt.Errorf("%w", context.Canceled) }}},
	{"a deadline", 3, failure{ambiguous, func(*attempt) error { return fmt.Errorf("%w", context.DeadlineExceeded) }}},
	{"refused", 5, failure{noEffect, func(*attempt) error {
		return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}}},
	{"reset", 5, failure{ambiguous, func(*attempt) error { return &net.OpError{Op: "read", Err: syscall.ECONNRESET} }}},
	{"one of two refused", 5, failure{ambiguous, func(*attempt) error {
		return errors.Join(syscall.ECONNREFUSED, errBoom)
	}}},
	{"a tree", 3, failure{ambiguous, func(a *attempt) error {
		return errors.Join(fmt.Errorf("%w: %w", errBoom, io.EOF), waitError{a.upTo(5)}, &unprintableError{})
	}}},
	{"a cycle", 2, failure{opaque, func(*attempt) error { return &selfWrapping{} }}},
	{"a nil pointer", 2, failure{ambiguous, func(*attempt) error { return (*nilSentinel)(nil) }}},
}

// fail returns an error. An error that has another one in its place is returned by first attempts only, because those
// of several attempts look the same.
func fail(a *attempt) error {
	f := draw(a.dice, failures, func(r row[failure]) bool {
		k := r.what.kind
		return (k == noFault || a.tool != blameless) && (k != opaque || a.n == 1)
	}).what

	err := f.err(a)
	a.noEffect = f.kind == noEffect
	if f.kind == opaque {
		a.trace = resilience.AsError("", err).Err
	}
	return err
}

// A soakConn is a connection that is lost after a while.
type soakConn struct {
	life   time.Duration
	closed chan struct{}
}

// What dials do, apart from making a connection.
var dials = []row[func(*soak, dice) error]{
	{"connects", 50, func(*soak, dice) error { return nil }},
	{"connects slowly", 20, func(s *soak, d dice) error { s.sleep(d.upTo(20)); return nil }},
	{"is refused", 20, func(*soak, dice) error { return errRefused }},
	{"panics", 5, func(*soak, dice) error { panic("dial") }},
	{"exits", 6, func(*soak, dice) error { runtime.Goexit(); return nil }},
}

func (s *soak) dial(context.Context) (*soakConn, error) {
	d := s.dice(uint64(s.dialed.Add(1)) << 32)
	if err := draw(d, dials, anyRow).what(s, d); err != nil {
		return nil, err
	}

	s.opened.Add(1)
	return &soakConn{d.upTo(200), make(chan struct{})}, nil
}

func watchConn(c *soakConn) error {
	select {
	case <-due(c.life):
	case <-c.closed:
	}
	return io.EOF
}

func (s *soak) closeConn(c *soakConn) error {
	s.opened.Add(-1)
	close(c.closed)
	return nil
}
