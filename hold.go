package resilience

import (
	"cmp"
	"context"
	"time"
)

const (
	defaultMaxHold = 10 * time.Second
	maxHeld        = 16                     // calls of a breaker at once
	holdStep       = 100 * time.Millisecond // after which the breaker of a held call is asked again
	oneTurn        = 500 * time.Millisecond // in which an agent's calls are parallel ones, rather than a reaction
)

// hold waits with the call of an agent that has been rejected before, until the breaker admits the call or the patience
// of [BreakerConfig].MaxHold ends: agents that call again at once can't wait by themselves. The first rejection of an
// agent is returned at once, so that it may go on with other tools.
func (e *entry) hold(ctx context.Context, rejected *Error) (admission, *Error) {
	b, r := e.breaker, e.opts.request
	agent := clip(cmp.Or(r.Caller, r.Session))
	if agent == "" || r.Client || e.outer != nil { // nobody knows who calls, or it is a program
		return admission{}, rejected
	}
	if comesBack := b.noteRejected(agent); !comesBack || rejected.RetryAfter <= 0 {
		return admission{}, rejected
	}

	defer b.held.Add(-1)
	if int(b.held.Add(1)) > cmp.Or(r.MaxHeld, maxHeld) {
		return admission{}, rejected
	}

	end := time.Now().Add(min(b.cfg.MaxHold, e.limits.timeout/2))
	for time.Now().Before(end) && !e.guard.Closed() {
		sleep(ctx, min(time.Until(end), holdStep))
		if ended := endOf(ctx, e.tool); ended != nil {
			return admission{}, ended
		}
		a, again := b.admit(e.limits.maximum)
		if again == nil {
			return a, nil
		}
		rejected = again
	}
	return admission{}, rejected
}

// noteRejected notes that an agent is rejected, and reports whether it was before. Parallel calls count as one.
func (b *Breaker) noteRejected(agent string) (before bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, told := b.told[agent]
	if told {
		return time.Since(at) >= oneTurn
	}

	if b.told == nil {
		b.told = make(map[string]time.Time)
	}
	if len(b.told) < maxNames {
		b.told[agent] = time.Now()
	}
	return false
}
