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
	Closed   State = iota // calls pass
	HalfOpen              // one probe passes, all others are turned away
	Open                  // all calls are turned away
)

// String returns "closed", "half-open" or "open".
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half-open"
	case Open:
		return "open"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText returns what String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const (
	defaultFailures     = 5
	defaultCooldown     = 30 * time.Second
	defaultProbeTimeout = 2 * time.Minute
)

// BreakerConfig configures a [Breaker]. The zero value is all defaults.
type BreakerConfig struct {
	// Failures is how many consecutive failures open it. 0: 5. Negative: not allowed.
	Failures int

	// Cooldown is how long it stays open before it lets one probe through. 0: 30s.
	// Negative: not allowed.
	Cooldown time.Duration

	// ProbeTimeout is how long a probe may go without reporting. One that takes
	// longer has failed, whatever it reports later, so that a probe that hangs
	// can't keep the breaker half-open for ever. 0: 2m. Negative: not allowed. A
	// Guard allows the tool's limit where that is longer.
	ProbeTimeout time.Duration

	// Classify says what an error means. nil: the package's Classify. It is called
	// concurrently, and never with nil; if it panics the error is Transient.
	Classify func(error) Class

	// OnChange is told of each change of state, in order and one at a time, on a
	// goroutine of its own: it never holds up a call, and may use the breaker. A
	// panic in it is recovered and ends that call of it only. One that blocks isn't
	// told of changes beyond the next 1,024. nil: nobody is told.
	OnChange func(name string, from, to State)
}

func (c BreakerConfig) check() []error {
	var errs []error
	if c.Failures < 0 {
		errs = append(errs, fmt.Errorf("%s is %d: it must not be negative (0 is the default)", "Failures", c.Failures))
	}
	return append(errs, notNegative("Cooldown", c.Cooldown, "ProbeTimeout", c.ProbeTimeout)...)
}

// A Breaker turns calls away while what they call is broken. It opens after
// consecutive failures, lets one probe through after a cooldown, and closes at once
// if that probe succeeds. One breaker serves calls of any result type, and all its
// methods are safe for concurrent use. Make one with [NewBreaker].
//
// It is gobreaker's two-step breaker with what that leaves to its user: outcomes
// that count once, a probe that can't be lost, the time until the next one, and
// changes reported outside its lock.
type Breaker struct {
	name string
	cfg  BreakerConfig
	gb   *gobreaker.TwoStepCircuitBreaker[struct{}]

	// version is the number of changes so far, times four, plus the state. It is
	// written under gobreaker's lock only.
	version atomic.Uint64

	// probeAt is when gobreaker lets a probe through, while it is open, or a moment later.
	probeAt atomic.Pointer[time.Time]

	mu       sync.Mutex // never held while gobreaker or user code is called
	failures int        // that opened it, and the probes that failed since
	probe    *ticket    // under way; nil if none is
	overdue  time.Time  // when it has failed

	message atomic.Pointer[message] // of the last rejection

	lane      queue       // of OnChange
	observers []*observer // a guard's
}

// NewBreaker returns a closed breaker. The name is for errors and OnChange. It
// panics if a field of cfg is negative.
func NewBreaker(name string, cfg BreakerConfig) *Breaker {
	if errs := cfg.check(); len(errs) > 0 {
		panic(fmt.Sprintf("resilience: NewBreaker: %v", errors.Join(errs...)))
	}
	if cfg.Failures == 0 {
		cfg.Failures = defaultFailures
	}
	if cfg.Cooldown == 0 {
		cfg.Cooldown = defaultCooldown
	}
	if cfg.ProbeTimeout == 0 {
		cfg.ProbeTimeout = defaultProbeTimeout
	}
	b := &Breaker{name: name, cfg: cfg}
	b.gb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		MaxRequests: 1,
		Interval:    0, // else the clock would reset the count of consecutive failures
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

// What gobreaker is told: it must not call a user's Classify under its lock.
var (
	errFailed  = errors.New("failed")
	errNeutral = errors.New("neutral")
)

// changed is called by gobreaker under its lock.
func (b *Breaker) changed(_ string, from, to gobreaker.State) {
	c := BreakerChange{Breaker: b.name, From: stateOf(from), To: stateOf(to), Time: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.To == Open {
		// gobreaker read the clock before it called us: ours is never too early.
		at := c.Time.Add(b.cfg.Cooldown)
		b.probeAt.Store(&at)
		if c.From == Closed {
			b.failures = b.cfg.Failures
		} else {
			b.failures++
		}
	}
	b.version.Store((b.version.Load()>>2+1)<<2 | uint64(c.To))
	if f := b.cfg.OnChange; f != nil {
		b.lane.add(func() { f(c.Breaker, c.From, c.To) })
	}
	for _, o := range b.observers {
		o.breaker(c)
	}
}

func stateOf(s gobreaker.State) State {
	switch s {
	case gobreaker.StateOpen:
		return Open
	case gobreaker.StateHalfOpen:
		return HalfOpen
	default:
		return Closed
	}
}

func stateIn(version uint64) State { return State(version & 3) }

// Name returns the name given to [NewBreaker].
func (b *Breaker) Name() string { return b.name }

// State returns the state as of now: an open breaker whose cooldown has passed is
// half-open.
func (b *Breaker) State() State { return stateOf(b.gb.State()) }

// RetryAfter returns how long it takes until an open breaker lets a probe through.
// It is 0 if the breaker isn't open, and never 0 while it is.
func (b *Breaker) RetryAfter() time.Duration {
	if b.State() != Open {
		return 0
	}
	return max(b.untilProbe(), 1) // gobreaker is still open at that very instant
}

// untilProbe requires that the breaker has been open.
func (b *Breaker) untilProbe() time.Duration { return time.Until(*b.probeAt.Load()) }

// consecutiveFailures is what an operator wants to read: gobreaker's own count
// starts again whenever the state changes.
func (b *Breaker) consecutiveFailures() int {
	if b.State() == Closed {
		return int(b.gb.Counts().ConsecutiveFailures)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures
}

// Allow asks to make a call. If it may be made, Allow returns done, to which the
// call's error (nil: success) must be reported. done may be called any number of
// times, concurrently too; the first counts. A result that belongs to an earlier
// state of the breaker is dropped. If the call must not be made, the error is a
// CIRCUIT_OPEN [*Error] whose RetryAfter is known: until the next probe while open,
// one second while a probe is under way.
//
// A probe that never reports has failed after ProbeTimeout; the next call of Allow
// finds that out.
func (b *Breaker) Allow() (done func(error), err error) {
	t := new(ticket)
	if rejected := b.admit(t); rejected != nil {
		return nil, rejected
	}
	return t.done, nil
}

// A ticket is the permission to make one call.
type ticket struct {
	b       *Breaker
	version uint64                  // of the breaker when it let the call pass
	report  func(error)             // gobreaker's: not idempotent
	call    atomic.Pointer[limited] // of a guard's probe: it isn't overdue while its limit, which may be paused, goes on
	used    atomic.Bool
}

// admit is Allow with a new ticket, which it fills in.
func (b *Breaker) admit(t *ticket) *Error {
	for {
		version := b.version.Load()
		if stateIn(version) == Open && b.untilProbe() > 0 {
			return b.rejection() // the usual case of an open breaker, without gobreaker's lock
		}
		report, err := b.gb.Allow()
		if err != nil {
			return b.reject(err)
		}
		if b.version.Load() != version {
			// The state changed meanwhile, which Allow itself does at the end of the
			// cooldown: whether this is a probe isn't known.
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

// reject also notices a probe that has been under way for too long.
func (b *Breaker) reject(err error) *Error {
	if err == gobreaker.ErrTooManyRequests {
		b.mu.Lock()
		p, overdue := b.probe, time.Now().After(b.overdue)
		b.mu.Unlock()
		if p != nil && overdue && (p.call.Load() == nil || p.call.Load().over()) {
			p.settle(errFailed)
		}
	}
	return b.rejection()
}

// rejection says when to come back. Without a known time, which is while a probe
// is under way, a second is soon enough.
func (b *Breaker) rejection() *Error {
	after := time.Second
	if stateIn(b.version.Load()) == Open {
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

// A message is kept because an open breaker is asked often.
type message struct {
	seconds int64
	text    string
}

func (t *ticket) isProbe() bool { return stateIn(t.version) == HalfOpen }

// done reports the result of the call; only the first report counts.
func (t *ticket) done(err error) {
	if err == nil {
		t.settle(nil)
		return
	}
	t.settle(count(err, t.b.cfg.Classify))
}

// settle takes nil, errFailed or errNeutral.
func (t *ticket) settle(result error) {
	if !t.used.CompareAndSwap(false, true) {
		return
	}
	t.report(result)
	if t.isProbe() {
		t.b.mu.Lock()
		if t.b.probe == t {
			t.b.probe = nil // a ticket is part of its call
		}
		t.b.mu.Unlock()
	}
}

// current reports whether the breaker would still let the call go on: it is closed,
// or the call is the probe that it waits for.
func (t *ticket) current() bool {
	v := t.b.version.Load()
	return v == t.version || stateIn(v) == Closed
}

// WithBreaker calls fn on this goroutine if b lets it, and reports the outcome to
// b. It returns fn's value and its own error unchanged, and CIRCUIT_OPEN if b
// turned the call away.
//
// An error of fn counts as b's Classify says, but never if ctx has been canceled by
// then; a panic or a runtime.Goexit counts as a failure, and a panic is returned as
// TOOL_FAILED around a [*PanicError]. A context that has ended already and a nil fn
// are errors too, which don't count. A nil ctx or b panics.
//
// A deadline of ctx's that ends fn counts as a failure: whose it was isn't known here,
// as it is to a [Guard]. WithBreaker can't return before fn does: put [WithTimeout]
// inside it.
func WithBreaker[T any](ctx context.Context, b *Breaker, fn func(context.Context) (T, error)) (T, error) {
	var none T
	if b == nil {
		panic("resilience: nil *Breaker")
	}
	if err := checkFunc(ctx, b.name, fn == nil); err != nil {
		return none, err
	}
	if err := endOf(ctx, b.name); err != nil {
		return none, err
	}
	t := new(ticket)
	if rejected := b.admit(t); rejected != nil {
		return none, rejected
	}
	defer t.settle(errFailed) // counts only if fn calls runtime.Goexit
	value, err := protect(ctx, fn)
	if err != nil && ctx.Err() == context.Canceled {
		t.settle(errNeutral)
	} else {
		t.done(err)
	}
	return value, crashed(b.name, err)
}
