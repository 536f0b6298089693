package resilience

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// State is the state of a [Breaker].
type State uint8

const (
	StateClosed   State = iota // calls pass
	StateHalfOpen              // one probe passes, all other calls are rejected
	StateOpen                  // all calls are rejected
)

// String returns "closed", "half-open" or "open".
func (s State) String() string {
	switch s {
	case StateClosed:
		return "closed"
	case StateHalfOpen:
		return "half-open"
	case StateOpen:
		return "open"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText returns the text of String. It never fails.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const (
	defaultFailures     = 5
	defaultCooldown     = 30 * time.Second
	defaultProbeTimeout = 2 * time.Minute
)

// BreakerConfig configures a [Breaker]. The zero value is all defaults.
type BreakerConfig struct {
	// Failures is how many consecutive failures open the breaker. Zero means 5. It must
	// not be negative.
	Failures int

	// Cooldown is how long the breaker stays open before it lets one probe pass. Zero means
	// 30s. It must not be negative.
	Cooldown time.Duration

	// ProbeTimeout is how long a probe may take to report its result. A probe that takes
	// longer has failed, whatever it reports later, so that a probe that hangs can't keep
	// the breaker half-open forever. While it is paused (see Pause), another call may be the
	// probe, and ProbeTimeout doesn't end it. A Guard allows a probe the tool's timeout where
	// that is longer. Zero means 2m. It must not be negative.
	ProbeTimeout time.Duration

	// Classify returns what an error means. It is called concurrently and never with nil. The error may
	// be wrapped together with what the tool's backend has said: ask it by errors.Is and errors.As. If
	// it panics, the error is ClassTransient. Nil means the package's Classify.
	Classify func(error) Class

	// OnChange is called for each change of state, in order and one at a time, on a
	// goroutine of its own: it never delays a call, and it may use the breaker. A panic in
	// it is recovered. While it blocks, up to 1,024 changes wait and further ones are
	// dropped. Nil means that nothing is called.
	OnChange func(name string, from, to State)
}

func (c BreakerConfig) check() []error {
	var errs fieldErrors
	if c.Failures < 0 {
		errs.add("Failures", "is %d: it must not be negative (0 is the default)", c.Failures)
	}

	return append(errs, notNegative("Cooldown", c.Cooldown, "ProbeTimeout", c.ProbeTimeout)...)
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	if c.Failures == 0 {
		c.Failures = defaultFailures
	}
	if c.Cooldown == 0 {
		c.Cooldown = defaultCooldown
	}
	if c.ProbeTimeout == 0 {
		c.ProbeTimeout = defaultProbeTimeout
	}
	return c
}

// A Breaker rejects calls while what they call is broken. It opens after consecutive
// failures, lets one probe pass after a cooldown, and closes as soon as a probe succeeds.
// One breaker serves calls of any result type, and all its methods are safe for concurrent
// use. Create one with [NewBreaker].
//
// It is gobreaker's two-step breaker, plus what that leaves to its user: results that count
// once, a probe that can't be lost, the time until the next probe, and changes that are
// reported outside of its lock.
type Breaker struct {
	name  string
	label string // for observers
	cfg   BreakerConfig
	gb    *gobreaker.TwoStepCircuitBreaker[struct{}]

	// version is the number of changes so far, times four, plus the state. It is written
	// under gobreaker's lock only.
	version atomic.Uint64

	// probeAt is the time at which gobreaker lets a probe pass, or a moment later. It is
	// set while the breaker is open.
	probeAt atomic.Pointer[time.Time]

	mu       sync.Mutex // guards what follows; not held while gobreaker or user code is called
	failures int        // that opened it, plus the probes that have failed since
	probe    *ticket    // under way; nil if there is none
	overdue  time.Time  // when that probe has failed
	slots    slotQueue

	message atomic.Pointer[message] // of the last rejection

	changes   queue // of OnChange
	observers []*observer
}

// NewBreaker returns a closed breaker. The name is used in errors and passed to OnChange. It
// panics if a field of cfg is negative.
func NewBreaker(name string, cfg BreakerConfig) *Breaker {
	if errs := cfg.check(); len(errs) > 0 {
		panic(fmt.Sprintf("resilience: NewBreaker: %v", errors.Join(errs...)))
	}
	cfg = cfg.withDefaults()

	b := &Breaker{name: name, label: name, cfg: cfg}
	b.gb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		MaxRequests: 1,
		Interval:    0, // otherwise the clock would reset the count of consecutive failures
		Timeout:     cfg.Cooldown,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return uint64(c.ConsecutiveFailures) >= uint64(cfg.Failures)
		},
		IsSuccessful:  func(err error) bool { return err == nil },
		IsExcluded:    func(err error) bool { return err == errNeutral },
		OnStateChange: b.changed,
	})
	return b
}

// changed is called by gobreaker under its lock.
func (b *Breaker) changed(_ string, from, to gobreaker.State) {
	c := BreakerChange{Breaker: b.name, Label: b.label, From: stateOf(from), To: stateOf(to), Time: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()

	if c.To == StateOpen {
		// gobreaker read the clock before it called us, so this is never too early.
		at := c.Time.Add(b.cfg.Cooldown)
		b.probeAt.Store(&at)
		if c.From == StateClosed {
			b.failures = b.cfg.Failures
		} else {
			b.failures++
		}
	}
	b.version.Store((b.version.Load()>>2+1)<<2 | uint64(c.To))
	b.slots.changed(c.To)

	if f := b.cfg.OnChange; f != nil {
		b.changes.add(func() { f(c.Breaker, c.From, c.To) })
	}
	for _, o := range b.observers {
		o.breaker(c)
	}
}

func stateOf(s gobreaker.State) State {
	switch s {
	case gobreaker.StateOpen:
		return StateOpen
	case gobreaker.StateHalfOpen:
		return StateHalfOpen
	default:
		return StateClosed
	}
}

func stateIn(version uint64) State { return State(version & 3) }

// Name returns the name that was given to [NewBreaker].
func (b *Breaker) Name() string { return b.name }

// State returns the current state. An open breaker whose cooldown has passed is half-open.
func (b *Breaker) State() State { return stateOf(b.gb.State()) }

// RetryAfter returns the time until an open breaker lets a probe pass. It is positive while
// the breaker is open, and zero otherwise.
func (b *Breaker) RetryAfter() time.Duration {
	if b.State() != StateOpen {
		return 0
	}

	return max(b.untilProbe(), 1) // gobreaker is still open at that very instant
}

// untilProbe requires that the breaker has been open.
func (b *Breaker) untilProbe() time.Duration { return time.Until(*b.probeAt.Load()) }

// rejects reports whether the breaker is open and its cooldown hasn't passed. Unlike State it changes
// nothing.
func (b *Breaker) rejects() bool {
	return stateIn(b.version.Load()) == StateOpen && b.untilProbe() > 0
}

// resting reports whether a new breaker would be no different.
func (b *Breaker) resting() bool {
	return stateIn(b.version.Load()) == StateClosed && b.gb.Counts().ConsecutiveFailures == 0
}

// consecutiveFailures returns the number that an operator wants to read: gobreaker's own
// count restarts whenever the state changes.
func (b *Breaker) consecutiveFailures() int {
	if b.State() == StateClosed {
		return int(b.gb.Counts().ConsecutiveFailures)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures
}

// Allow asks for the permission to make one call. If the call may be made, Allow returns
// done, to which the call's error must be reported, nil for a success. Otherwise the error
// is a CIRCUIT_OPEN [*Error] with a RetryAfter: the time until the next probe while the
// breaker is open, one second while a probe is under way.
//
// Only the first call of done counts; it is safe for concurrent use. A result that belongs
// to an earlier state of the breaker is dropped. A probe that never reports has failed after
// ProbeTimeout, which the next call of Allow notices.
//
// Allow has no context, so it can't know that it is used inside of a call that b has admitted: that is
// another call, and counts by itself. Rather use [WithBreaker] or a [Guard] there.
func (b *Breaker) Allow() (done func(error), err error) {
	t := new(ticket)
	if rejected := b.admit(t, 0); rejected != nil {
		return nil, rejected
	}

	return t.done, nil
}

// WithBreaker calls fn on this goroutine if b admits the call, and reports the result to b.
// It returns the value and the error of fn unchanged, or CIRCUIT_OPEN if b rejects the call.
//
// An error of fn counts as b's Classify says, but not if ctx has been canceled by then. A
// panic or a runtime.Goexit counts as a failure; a panic is returned as TOOL_FAILED around a
// [*PanicError]. A context that has already ended is CANCELED or TIMEOUT and a nil fn is
// TOOL_NOT_FOUND; neither counts. A nil ctx or b panics.
//
// Inside of a call that b has admitted, a call on b belongs to that call: it passes, and doesn't
// count by itself.
//
// If a deadline of ctx ends fn, that counts as a failure: only a [Guard] knows whose
// deadline it was. WithBreaker can't return before fn does; put [WithTimeout] inside it.
func WithBreaker[T any](ctx context.Context, b *Breaker, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	if b == nil {
		panic("resilience: nil *Breaker")
	}
	if err := checkFunc(ctx, b.name, fn == nil); err != nil {
		return zero, err
	}
	if err := endOf(ctx, b.name); err != nil {
		return zero, err
	}

	if ticketOf(ctx, b) != nil {
		value, err := protect(ctx, fn)
		return value, crashError(b.name, err)
	}

	t := new(ticket)
	if rejected := b.admit(t, 0); rejected != nil {
		return zero, rejected
	}
	defer t.settle(outcomeFailure, false) // counts only if fn calls runtime.Goexit

	value, err := protect(t.within(ctx), fn)
	if err != nil && !isCrash(err) && ask(ctx.Err) == context.Canceled {
		t.settle(outcomeNeutral, false)
	} else {
		t.done(err)
	}
	return value, crashError(b.name, err)
}
