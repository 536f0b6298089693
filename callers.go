package resilience

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMaxHold = 10 * time.Second
	maxHeld        = 16                     // calls of a breaker at once
	holdStep       = 100 * time.Millisecond // after which the breaker of a held call is asked again
	manyTimes      = 3                      // failures of a caller in a row, for the same reason, that are worth a word
)

// caller returns who makes the call, and whether that is an agent: calls of a program's own are neither held nor
// counted. Without a session, all agents are one.
func (e *entry) caller() (session string, ok bool) {
	if e.opts.request == nil || e.outer != nil {
		return "", false
	}
	return clip(e.opts.request.Session), true
}

// hold waits with a call whose caller comes back before the time that it was told, until the breaker admits the call or
// the patience of [BreakerConfig].MaxHold ends: agents that call again at once can't wait by themselves. The first
// rejection of a caller is returned at once, so that an agent may go on with other tools.
func (e *entry) hold(ctx context.Context, rejected *Error) (admission, *Error) {
	b := e.breaker
	session, ok := e.caller()
	if !ok || rejected.RetryAfter <= 0 || !b.tell(session, rejected.RetryAfter) {
		return admission{}, rejected
	}

	defer b.held.Add(-1)
	if int(b.held.Add(1)) > cmp.Or(e.opts.maxHeld, maxHeld) {
		return admission{}, rejected
	}

	end := time.Now().Add(min(b.cfg.MaxHold, e.limits.timeout/2, rejected.RetryAfter+holdStep)) // a Probe may end by then
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

// tell notes that a caller was told to come back after a time, and reports whether it has come too early.
func (b *Breaker) tell(session string, after time.Duration) (early bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	early = now.Before(b.told[session])
	if b.told == nil {
		b.told = make(map[string]time.Time)
	}
	if early || len(b.told) < maxNames {
		b.told[session] = now.Add(after)
	}
	return early
}

// streaks count, for each caller of a tool, the failures in a row for the same reason. The zero value is empty.
type streaks struct {
	any atomic.Bool // whether there may be one: without failures, a call costs no lock

	mu       sync.Mutex
	byCaller map[string]streak
}

type streak struct {
	reason string
	n      int
}

// failed counts a failure and returns how many of them there are in a row.
func (s *streaks) failed(session, reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byCaller == nil {
		s.byCaller = make(map[string]streak)
	}
	now := s.byCaller[session]
	if now.reason != reason {
		now = streak{reason: reason}
	}
	now.n++
	if now.n > 1 || len(s.byCaller) < maxNames {
		s.byCaller[session] = now
		s.any.Store(true)
	}
	return now.n
}

// succeeded ends the streak of a caller.
func (s *streaks) succeeded(session string) {
	if !s.any.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byCaller, session)
	s.any.Store(len(s.byCaller) > 0)
}
