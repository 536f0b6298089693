package redisfleet

import (
	"cmp"
	"context"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// run sends news to Redis at once, and polls it at each interval, until the guard leaves.
func (f *Fleet) run() {
	ctx := context.Background()
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()

	for {
		select {
		case <-f.quit:
			return
		case <-f.wake:
			if f.Health().Err == nil {
				_ = f.tell(ctx)
			}
		case <-ticker.C:
			if f.tell(ctx) == nil {
				_ = f.poll(ctx)
			}
		}
	}
}

// poll asks what the fleet knows, and does so. If Redis didn't know the member, it may have lost its memory: it is told
// first, and asked again.
func (f *Fleet) poll(ctx context.Context) error {
	unknown, err := f.ask(ctx)
	if err == nil && unknown {
		_, err = f.ask(ctx)
	}
	return err
}

// ask implements poll with one question. If Redis didn't know the member, or has been away, it sends all
// failures.
func (f *Fleet) ask(ctx context.Context) (unknown bool, err error) {
	a, err := f.store.poll(ctx)
	again := f.note(err)
	if err != nil {
		return false, err
	}

	f.mu.Lock()
	f.known, f.health.Members = a, a.members
	if f.since == 0 {
		f.since = a.now
	}
	if !a.unknown {
		f.follow()
	}
	f.mu.Unlock()
	if again || a.unknown {
		err = f.tellAll(ctx)
	}
	return a.unknown, err
}

// tell sends the news. Those of calls are lost if Redis can't be reached: see tellAll. What was done by hand is kept.
func (f *Fleet) tell(ctx context.Context) error {
	f.mu.Lock()
	away := f.health.Err != nil
	all := f.news
	f.news = make(map[string]*news)
	f.mu.Unlock()

	var err error
	for breaker, n := range all {
		if away {
			*n = news{byHand: n.byHand}
		}
		if err == nil {
			err = f.send(ctx, breaker, n)
		}
		if err != nil && n.byHand != nil {
			f.keep(breaker, n.byHand)
		}
	}
	if err != nil {
		f.note(err)
	}
	return err
}

// keep keeps a change by hand that couldn't be sent, unless there is a later one.
func (f *Fleet) keep(breaker string, e *resilience.BreakerChange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.news[breaker]
	if n == nil {
		n = new(news)
		f.news[breaker] = n
	}
	n.byHand = cmp.Or(n.byHand, e)
}

// send sends the news of one breaker.
func (f *Fleet) send(ctx context.Context, breaker string, n *news) error {
	if e := n.byHand; e != nil {
		if err := f.sendByHand(ctx, e); err != nil {
			return err
		}
	}

	if n.closed || n.succeeded {
		how := succeededCall
		if n.closed {
			how = succeededClosed
		}
		if err := f.store.succeeded(ctx, breaker, how); err != nil {
			return err
		}
	}

	if n.failures > 0 {
		return f.sendFailures(ctx, breaker, n.failures, f.configOf(breaker), failedMore)
	}
	return nil
}

// sendByHand sends what an operator has done.
func (f *Fleet) sendByHand(ctx context.Context, e *resilience.BreakerChange) error {
	switch e.To {
	case resilience.StateIsolated:
		return f.store.isolate(ctx, e.Breaker, e.Reason)
	case resilience.StateClosed:
		return f.store.reset(ctx, e.Breaker)
	}

	cfg := f.configOf(e.Breaker)
	for _, b := range f.breakers() {
		if b.Name() == e.Breaker && cfg.Probe == nil { // otherwise, RetryAfter is the time until the next Probe
			cfg.Cooldown = b.RetryAfter()
		}
	}
	if cfg.Cooldown == 0 {
		return nil // it is over
	}
	return f.sendFailures(ctx, e.Breaker, 0, cfg, failedTrip)
}

// sendFailures sends failures, and does what the answer says: other members may have opened the breaker meanwhile.
func (f *Fleet) sendFailures(
	ctx context.Context, breaker string, failures int, cfg resilience.BreakerConfig, how string,
) error {
	now, b, err := f.store.failed(ctx, breaker, failures, cfg, how)
	if err != nil {
		return err
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.now, f.known.received = now, time.Now()
	if b != (shared{}) {
		f.known.breakers[breaker] = b
	}
	if how != failedAll { // otherwise there is more to come
		f.follow()
	}
	return nil
}

// tellAll tells Redis of the failures in a row that the guard's breakers have seen.
func (f *Fleet) tellAll(ctx context.Context) error {
	for _, b := range f.breakers() {
		state, failures := b.State(), b.Failures()
		if failures == 0 || state == resilience.StateIsolated {
			continue
		}
		if err := f.sendFailures(ctx, b.Name(), failures, f.configOf(b.Name()), failedAll); err != nil {
			f.note(err)
			return err
		}
	}
	return nil
}

// lease is the guard's BreakerConfig.Lease. A call waits for it no longer than f.patience, and not at all while
// Redis can't be reached; without an answer, the member decides alone.
func (f *Fleet) lease(breaker string) bool {
	f.mu.Lock()
	alone, how := f.guard == nil || f.health.Err != nil, leaseCall
	if f.known.left(f.known.breakers[breaker]) > 0 {
		how = leaseBackground // the breaker is open here, too, so this is its Probe
	}
	asked := how + "/" + breaker
	refused := time.Since(f.refused[asked]) < refusalTime
	f.mu.Unlock()
	if alone || refused {
		return alone
	}

	cfg := f.configOf(breaker)
	granted, err := f.store.lease(context.Background(), f.patience, breaker, min(cfg.ProbeTimeout, cfg.Cooldown), how)
	f.mu.Lock()
	defer f.mu.Unlock()
	if granted || err != nil {
		delete(f.refused, asked)
		return true
	}
	f.refused[asked] = time.Now()
	return false
}

func (f *Fleet) configOf(breaker string) resilience.BreakerConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config.of(breaker)
}

// breakers returns the guard's breakers, none if it has left.
func (f *Fleet) breakers() []*resilience.Breaker {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guard == nil {
		return nil
	}
	return f.guard.Breakers()
}
