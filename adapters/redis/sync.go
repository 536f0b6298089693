package redisfleet

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed8d1e2389/resilience"
)

const (
	// heartbeat is how often a member says that it is alive, at least, and retry how often it tries to reach a store
	// that doesn't answer.
	heartbeat = time.Second
	retry     = 250 * time.Millisecond

	// comparison is how often configurations are compared, and maxCompared how many of a member's.
	comparison  = time.Minute
	maxCompared = 1000

	// lately is for how long the store remembers that a probe has closed a breaker.
	lately = time.Minute
)

// run keeps the member and the store in agreement, until ctx ends.
func (e *engine) run(ctx context.Context) {
	var compared time.Time
	for joined, whole := false, false; ctx.Err() == nil; {
		delay, wake := heartbeat-rand.N(heartbeat/4), e.wake
		asked, hears := time.Now(), e.isHearing()
		members, err := e.sync(ctx, asked)
		if err == nil {
			e.found(asked, members)
		}
		if err == nil && time.Since(compared) >= comparison {
			compared = time.Now()
			e.reread()
			err = e.compare(ctx)
		}
		if err != nil && ctx.Err() == nil {
			e.lost(err)
			delay, wake = retry, nil // which messages don't hurry: what the member tries in vain may cause them
		}
		if !joined && (err == nil || isRefusal(err)) {
			joined = true
			e.joined(err)
		}
		if !whole && err == nil && hears {
			whole = true
			close(e.whole)
		}

		select {
		case <-ctx.Done():
		case <-wake:
		case <-time.After(delay):
		}
	}
}

// reread lets the next sync read all breakers, so that the store doesn't forget one of which there is nothing new.
func (e *engine) reread() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubts()
}

// joined says that the store has answered: err is why it refuses the member, if it does.
func (e *engine) joined(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused = err
	close(e.first)
}

// sync tells the store what has happened while it could not be reached, and learns what it has heard of others. It
// returns how many members there are. The end of run ends no command, but a listing between two pages.
func (e *engine) sync(run context.Context, asked time.Time) (members int, err error) {
	ctx := context.WithoutCancel(run)
	if err := e.catchUp(ctx); err != nil {
		return 0, err
	}
	if err := e.renew(ctx); err != nil {
		return 0, err
	}
	reply, err := e.look(ctx)
	if err != nil || reply.Complete {
		return reply.Members, err
	}

	all, err := e.list(ctx, run, reply)
	if err != nil {
		return 0, err
	}
	if all != nil {
		e.learn(asked, reply, all)
	}
	return reply.Members, nil
}

// syncAgain asks for another sync at once.
func (e *engine) syncAgain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resync()
}

// hasHeard reports whether the member has seen all of this memory by now.
func (e *engine) hasHeard(m memory) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known.Since == m.Since && e.known.Version >= m.Version
}

// look asks the store what its memory is, after giving it what the member knows if it has forgotten that.
func (e *engine) look(ctx context.Context) (syncReply, error) {
	reply, since, err := e.ask(ctx)
	if err != nil || reply.Since == since {
		return reply, err
	}
	if err := e.remember(ctx, reply); err != nil || since == "" {
		return reply, err
	}
	reply, _, err = e.ask(ctx)
	return reply, err
}

// ask asks the store what its memory is. It also returns which one the member knows.
func (e *engine) ask(ctx context.Context) (reply syncReply, since string, err error) {
	e.mu.Lock()
	known, since := e.known, e.since
	e.mu.Unlock()

	asked := time.Now()
	reply, err = bounded(ctx, &e.hanging, func(ctx context.Context) (syncReply, error) {
		return e.store.sync(ctx, known)
	})
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.clock = e.clock.heard(time.UnixMilli(reply.Now), asked, time.Now())
	}
	return reply, since, err
}

// renew keeps the leases of probes that are under way, unless it has just done so: each sync does, and what takes long
// does meanwhile.
func (e *engine) renew(ctx context.Context) error {
	if time.Since(e.renewed) < heartbeat/2 {
		return nil
	}
	e.renewed = time.Now()
	e.mu.Lock()
	var open []string
	for id, x := range e.breakers {
		if x.State == "open" {
			open = append(open, id)
		}
	}
	e.mu.Unlock()

	var probing []news
	for _, id := range open {
		if b, _ := e.member.Breaker(id); b.Probing {
			probing = append(probing, news{op: "renew", breaker: b})
		}
	}
	for batch := range slices.Chunk(probing, maxBatch) { // tellAll would renew meanwhile
		if _, err := e.tell(ctx, batch, func(news, entry) {}); err != nil {
			e.renewed = time.Time{}
			return err
		}
	}
	return nil
}

// remember gives a store that has lost its memory, or the newest part of it, what the member knows. What it can't give,
// the next sync does.
func (e *engine) remember(ctx context.Context, reply syncReply) error {
	e.mu.Lock()
	l := e.learned
	memories, newer := l.memories(), l.newer(reply.Of)
	e.known, e.learned, e.foreign = memory{}, nothing(reply.Since), ""
	e.before = memories.next(reply.Of)
	e.breakers = maps.Clone(l.breakers) // until they have been read
	e.mu.Unlock()

	older := memories.older(reply.Of)
	err := e.restore(ctx, l, newer, older)
	if err == nil {
		err = e.reclose(ctx, l, newer, older)
	}
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.learned = l
	}
	return err
}

// restore tells the store which of these are open or isolated, which it did not know in this older version of its
// memory.
func (e *engine) restore(ctx context.Context, l learned, newer []entry, older int64) error {
	var all []news
	for _, x := range newer {
		b, _ := e.member.Breaker(x.ID)
		if x.State == "closed" || x.State == "open" && b.State == resilience.StateClosed {
			continue
		}

		c, at := x.change(time.Time{}), x.made
		var opened time.Time
		if x.State == "open" {
			at, opened = x.lastFailure(b), x.openSince(b)
		}
		if b.Cause == resilience.CauseManual { // what one member's operator wants is no one else's
			b.RetryAfter = c.RetryAfter - time.Since(x.asOf())
		}
		b.ID, b.State = x.ID, c.State // the member may know of it without having it
		all = append(all, news{op: "restore", breaker: b, reason: x.Reason, at: at, opened: opened, older: older})
	}

	asked := time.Now()
	_, err := e.tellAll(ctx, all, func(n news, restored entry) {
		id := n.breaker.ID
		delete(l.breakers, id) // it isn't told again, whatever happens to the others
		delete(l.versions, id)
		if restored.Version > 0 {
			e.told(restored, asked)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.breakers, id) // there is no room for it: it stays as it is
	})
	return err
}

// lastFailure returns when a probe, or a call, of a breaker that is open has failed last, as far as the member knows, which
// has this one itself.
func (e entry) lastFailure(b resilience.FleetBreaker) time.Time {
	at := e.asOf().Add(-duration(max(e.Failed, 0)))
	if e.failed.After(at) {
		at = e.failed
	}
	if b.State == resilience.StateOpen && b.Cause != resilience.CauseManual && b.Changed.After(at) {
		at = b.Changed
	}
	return at
}

// openSince returns since when Probes that fail may put calls off, as far as the member knows: since the breaker has
// opened, or a call has failed as the probe. What the member's own calls had done before it heard of the opening, they may
// have done to close the breaker.
func (e entry) openSince(b resilience.FleetBreaker) time.Time {
	if b.State == resilience.StateOpen && b.Cause == resilience.CauseCalls && b.Changed.After(e.came) {
		return b.Changed
	}
	return e.asOf().Add(-duration(max(e.Opened, 0)))
}

// asOf returns when the store has said so. In a long listing, the member hears of it only at the end.
func (e entry) asOf() time.Time {
	if e.read.IsZero() {
		return e.came
	}
	return e.read
}

// reclose tells the store which of these have been closed after this version of its memory, if it isn't zero, also by the
// member alone, and which ones by a probe, within a minute.
func (e *engine) reclose(ctx context.Context, l learned, newer []entry, older int64) error {
	var all []news
	for _, x := range newer {
		b, has := e.member.Breaker(x.ID)
		alone := has && x.State == "open" && b.State == resilience.StateClosed && b.Cause != resilience.CauseManual
		if x.State != "closed" && !alone {
			continue
		}

		b.ID = x.ID
		if older > 0 {
			all = append(all, news{op: "reclose", breaker: b, older: older})
		}
		at := l.versions[x.ID].recovered
		if alone {
			at = b.Changed
		}
		if time.Since(at) < lately {
			all = append(all, news{op: "recovered", breaker: b, at: at})
		}
	}
	_, err := e.tellAll(ctx, all, func(news, entry) {})
	return err
}

// compare finds members whose breakers are configured differently.
func (e *engine) compare(ctx context.Context) error {
	own := make(map[string]string)
	var configs []string
	for _, b := range e.member.Breakers() {
		if len(configs) == maxCompared {
			break
		}
		if !isListed(b.ID) {
			continue // that of a key is configured as its tool's, and agents make up the names of other tools
		}
		own[b.ID] = fmt.Sprintf("%d failures, a cooldown of %s", b.Config.Failures, b.Config.Cooldown)
		if b.Config.Probe != nil {
			own[b.ID] += fmt.Sprintf(", a Probe every %s", b.Config.ProbeInterval)
		}
		configs = append(configs, b.ID+" "+own[b.ID])
	}

	all, err := bounded(ctx, &e.hanging, func(ctx context.Context) ([]string, error) {
		return e.store.compare(ctx, configs)
	})
	if err != nil {
		return err
	}
	var differ []string
	for _, c := range all {
		id, theirs, _ := strings.Cut(c, " ")
		if ours, ok := own[id]; ok && ours != theirs {
			differ = append(differ, fmt.Sprintf("%s: %s here, %s elsewhere", id, ours, theirs))
		}
	}
	slices.Sort(differ)
	e.differ(differ)
	return nil
}
