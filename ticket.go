package resilience

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// An outcome is what the end of a call means to its breaker.
type outcome uint8

const (
	outcomePending outcome = iota // the call has not ended
	outcomeSuccess
	outcomeFailure
	outcomeNeutral // counts neither way, and gives the slot of a probe back
)

// These errors stand for outcomes where gobreaker wants an error. It must not call a user's
// Classify under its lock.
var (
	errFailure = errors.New("failure")
	errNeutral = errors.New("neutral")
)

func (o outcome) err() error {
	switch o {
	case outcomeSuccess:
		return nil
	case outcomeNeutral:
		return errNeutral
	default:
		return errFailure
	}
}

// A ticket is the permission to make one call.
type ticket struct {
	b       *Breaker
	version uint64      // of the breaker when it admitted the call
	report  func(error) // gobreaker's, which isn't idempotent
	used    atomic.Bool

	// probe is the context of a guard's probe: the probe isn't overdue while its timeout,
	// which may be paused, goes on.
	probe atomic.Pointer[callContext]
}

// admit implements Allow with a new ticket, which it fills in.
func (b *Breaker) admit(t *ticket) *Error {
	for {
		version := b.version.Load()
		if stateIn(version) == StateOpen && b.untilProbe() > 0 {
			return b.rejection() // the usual case of an open breaker, without gobreaker's lock
		}

		report, err := b.gb.Allow()
		if err != nil {
			b.expireProbe(err)
			return b.rejection()
		}
		if b.version.Load() != version {
			// The state has changed meanwhile, as Allow itself changes it at the end of the
			// cooldown, so it isn't known whether this is a probe.
			report(errNeutral)
			continue
		}

		t.b, t.version, t.report = b, version, report
		if t.isProbe() {
			b.mu.Lock()
			b.probe, b.overdue = t, time.Now().Add(b.cfg.ProbeTimeout)
			b.mu.Unlock()
		}
		return nil
	}
}

// expireProbe fails a probe that has been under way for too long. err is why gobreaker
// rejected a call.
func (b *Breaker) expireProbe(err error) {
	if err != gobreaker.ErrTooManyRequests {
		return
	}

	b.mu.Lock()
	t, overdue := b.probe, time.Now().After(b.overdue)
	b.mu.Unlock()
	if t == nil || !overdue {
		return
	}
	if ctx := t.probe.Load(); ctx == nil || ctx.over() {
		t.settle(outcomeFailure)
	}
}

// A message is kept because an open breaker is asked often.
type message struct {
	seconds int64
	text    string
}

// rejection returns the error of a rejected call. While a probe is under way, nothing says
// when it will end, and a second is soon enough to come back.
func (b *Breaker) rejection() *Error {
	after := time.Second
	if stateIn(b.version.Load()) == StateOpen {
		after = max(b.untilProbe(), 1)
	}

	m := b.message.Load()
	if s := wholeSeconds(after); m == nil || m.seconds != s {
		m = &message{s, circuitOpenMessage(s)}
		b.message.Store(m)
	}

	e := newError(CodeCircuitOpen, b.name, m.text, true)
	e.RetryAfter = after
	return e
}

func (t *ticket) isProbe() bool { return stateIn(t.version) == StateHalfOpen }

// done reports the result of the call. Only the first report counts.
func (t *ticket) done(err error) {
	if err == nil {
		t.settle(outcomeSuccess)
		return
	}

	t.settle(outcomeOf(err, t.b.cfg.Classify))
}

// settle reports the outcome of the call. Only the first report counts.
func (t *ticket) settle(o outcome) {
	if !t.used.CompareAndSwap(false, true) {
		return
	}

	t.report(o.err())
	if !t.isProbe() {
		return
	}

	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if t.b.probe == t {
		t.b.probe = nil // the ticket is part of its call, which must not be kept
	}
}

// current reports whether the breaker would still admit the call: it is closed, or the call
// is the probe that it waits for.
func (t *ticket) current() bool {
	v := t.b.version.Load()
	return v == t.version || stateIn(v) == StateClosed
}
