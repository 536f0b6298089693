package resilience

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// A Breaker rejects calls while their backend is broken. It opens after consecutive failures, lets one probe pass after
// a cooldown, and closes as soon as a probe succeeds. Create one with [NewBreaker]. All methods are safe for concurrent
// use. Isolate, Trip and Reset may be called from any callback.
type Breaker struct {
	name     string
	key      string // see BreakerKey; empty if the breaker isn't one of a key
	cfg      *BreakerConfig
	guard    *Guard              // that made it; nil if none did
	onChange func(BreakerChange) // never blocks

	phase atomic.Pointer[phase] // replaced with mu held

	held atomic.Int32 // calls, see hold

	mu     sync.Mutex           // not held while gobreaker or user code is called
	extra  int                  // probes that are admitted beside the first one, see settle
	told   map[string]time.Time // when each caller was rejected first
	prober prober
}

// A phase is the time between two changes of a breaker. Results of calls that an earlier phase has
// admitted are dropped.
type phase struct {
	state    State
	counter  *gobreaker.TwoStepCircuitBreaker[struct{}] // counts failures while the breaker is closed
	failures int                                        // that opened it, and failed probes since
	since    time.Time                                  // when the breaker opened
	reason   string                                     // of Isolate, or why the last call failed

	// until is when the phase ends if nothing else ends it: an open breaker lets a call be the probe then, and the
	// probe of a half-open one has failed. While the breaker is half-open, these are guarded by its mutex.
	until     time.Time
	slots     int  // for calls that may be probes
	contended bool // a call was rejected because there was no slot

	said atomic.Pointer[Error] // the last rejection, whose words hold for a second
}

func (p *phase) left() time.Duration { return time.Until(p.until) }

// NewBreaker returns a closed breaker. The name is used in errors and passed to OnChange. NewBreaker panics if cfg is
// invalid.
func NewBreaker(name string, cfg BreakerConfig) *Breaker {
	if errs := cfg.check(); len(errs) > 0 {
		panic(fmt.Sprintf("resilience: NewBreaker: %v", errors.Join(errs...)))
	}

	cfg = cfg.withDefaults()
	b := newBreaker(name, &cfg)
	if cfg.OnChange != nil {
		var changes queue
		b.onChange = func(e BreakerChange) {
			changes.add(func() { cfg.OnChange(e.Breaker, e.From, e.To) })
		}
	}
	return b
}

// newBreaker returns a closed breaker with a configuration that is complete.
func newBreaker(name string, cfg *BreakerConfig) *Breaker {
	b := &Breaker{name: name, cfg: cfg, onChange: func(BreakerChange) {}}
	b.phase.Store(b.closedPhase())
	return b
}

// Name returns the name of the breaker.
func (b *Breaker) Name() string { return b.name }

// Key returns the [BreakerKey] that the breaker is for, "" if it has none.
func (b *Breaker) Key() string { return b.key }

// State returns the state. After its cooldown an open breaker is half-open.
func (b *Breaker) State() State {
	p := b.phase.Load()
	if p.state == StateOpen && p.left() <= 0 {
		return StateHalfOpen
	}
	return p.state
}

// RetryAfter returns the time until a call or BreakerConfig.Probe asks the backend of an open breaker again. It is zero
// unless the breaker is open.
func (b *Breaker) RetryAfter() time.Duration {
	p := b.phase.Load()
	if p.state != StateOpen || p.left() <= 0 {
		return 0
	}

	left := p.left()
	if next, ok := b.prober.next(); ok {
		if next <= 0 {
			next = time.Second // Probe runs, and may take any time
		}
		left = min(left, next)
	}
	return max(left, 1)
}

// Failures returns how many calls in a row have failed, probes included.
func (b *Breaker) Failures() int {
	p := b.phase.Load()
	if p.state == StateClosed {
		return int(p.counter.Counts().ConsecutiveFailures)
	}
	return p.failures
}

// healthy reports whether the breaker is closed and has no failures.
func (b *Breaker) healthy() bool { return b.phase.Load().state == StateClosed && b.Failures() == 0 }

// closedPhase returns a phase in which gobreaker counts.
func (b *Breaker) closedPhase() *phase {
	return &phase{state: StateClosed, counter: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		ReadyToTrip: func(n gobreaker.Counts) bool { return uint64(n.ConsecutiveFailures) >= uint64(b.cfg.Failures) },
		IsExcluded:  func(err error) bool { return err == errNeutral },
	})}
}

// admit lets a call pass, or returns why it is rejected. A probe that takes longer than keep, or
// than ProbeTimeout if that is longer, has failed.
func (b *Breaker) admit(keep time.Duration) (a admission, rejected *Error) {
	for {
		p := b.phase.Load()
		switch p.state {
		case StateClosed:
			report, err := p.counter.Allow()
			if err == nil {
				return admission{b, p, report}, nil
			}
			b.trip(p, "") // a call has failed just now
		case StateIsolated:
			return a, b.rejection(p)
		case StateOpen:
			if p.left() > 0 || !b.mayProbe() {
				return a, b.rejection(p)
			}
			b.thaw()
		case StateHalfOpen:
			if a, done := b.takeSlot(p, max(keep, b.cfg.ProbeTimeout)); done {
				if a.b == nil {
					return a, b.rejection(b.phase.Load())
				}
				return a, nil
			}
		}
	}
}

// thaw makes an open breaker half-open if its cooldown has passed.
func (b *Breaker) thaw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.phase.Load(); p.state == StateOpen && p.left() <= 0 {
		b.change(&phase{
			state: StateHalfOpen, slots: 1 + b.extra, failures: p.failures, since: p.since, reason: p.reason,
		}, CauseCooldown)
	}
}

// takeSlot takes a slot of a half-open breaker, so that a call is the probe. If there is none, the admission is zero.
// If the probe has held its slot for longer than it may, it has failed. It returns false if the breaker has changed.
func (b *Breaker) takeSlot(p *phase, keep time.Duration) (a admission, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.Load() != p {
		return a, false
	}

	if p.slots == 0 {
		p.contended = true
		if p.left() < 0 {
			b.open(b.cfg.Cooldown, p.failures+1, CauseCalls, string(CodeTimeout))
		}
		return a, true
	}
	p.slots--
	p.contended = false
	p.until = time.Now().Add(keep)
	return admission{b: b, phase: p}, true
}

// trip opens a closed breaker whose counter has had too many failures.
func (b *Breaker) trip(p *phase, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.Load() == p {
		b.open(b.cfg.Cooldown, b.cfg.Failures, CauseCalls, why)
	}
}

// open opens the breaker for d, because of a call that failed for a reason that may be empty. b.mu must be held.
func (b *Breaker) open(d time.Duration, failures int, cause Cause, why string) {
	now, since := time.Now(), b.phase.Load().since
	if since.IsZero() {
		since = now
	}
	b.change(&phase{state: StateOpen, until: now.Add(d), failures: failures, since: since, reason: why}, cause)
}

// change begins a phase. b.mu must be held.
func (b *Breaker) change(to *phase, cause Cause) {
	from := b.phase.Swap(to)
	if to.state == StateClosed {
		b.extra, b.told = 0, nil
	}
	b.prober.changed(b, to.state, cause)
	if from.state != to.state || from.reason != to.reason {
		b.onChange(BreakerChange{
			Breaker: b.name, From: from.state, To: to.state, Cause: cause, Reason: to.reason, Time: time.Now(),
		})
	}
}

// rejection returns the error of a call that is rejected in phase p.
func (b *Breaker) rejection(p *phase) *Error {
	if p.state == StateIsolated {
		return b.isolatedError(p.reason)
	}

	after := cmp.Or(b.RetryAfter(), time.Second) // while the backend is being asked, the answer may come at any time
	_, probing := b.prober.next()
	if probing { // the longer that has been in vain, the more seldom agents come back
		after = max(after, min(time.Since(p.since), b.cfg.Cooldown))
	}
	seconds := wholeSeconds(after)
	asking := probing || p.state == StateHalfOpen || p.left() <= 0
	if said := p.said.Load(); said != nil && !asking && wholeSeconds(said.RetryAfter) == seconds {
		e := *said
		e.RetryAfter = after
		return &e
	}

	text := circuitOpenMessage(p.reason, seconds)
	if asking {
		text = circuitOpenMessage(p.reason, 0) +
			" Its backend is being asked; call again in " + plural(seconds, "second") + "."
	}

	e := newError(CodeCircuitOpen, b.name, text, true)
	e.RetryAfter, e.reason = after, lastCall(p.reason)
	if b.key != "" {
		e.Message, e.reason, e.guidance.keyed = "For '"+b.key+"': "+text, "for '"+b.key+"', "+e.reason, true
	}
	e.suggest(nil)
	if !asking {
		said := *e
		p.said.Store(&said)
	}
	return e
}

// isolatedError has no time to wait, since an operator decides.
func (b *Breaker) isolatedError(reason string) *Error {
	text := "taken out of service"
	if reason != "" {
		text += ": " + reason
	}
	e := newError(CodeCircuitOpen, b.name, "'"+b.name+"' is "+text, false)
	e.reason = text
	return e
}
