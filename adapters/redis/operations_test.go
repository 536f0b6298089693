package redisfleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// fork begins another memory if this one lacks what the member has seen.
func (s *modelStore) fork() {
	seen, since := s.seen.Load(), fmt.Sprint(s.since)
	switch {
	case s.before == nil || seen == nil || seen.Since == "",
		seen.Since == since && s.version >= seen.Version, slices.Contains(s.before, seen.Since):
		return
	}
	s.before = append(slices.Clip(s.before), since)
	if seen.Since != since {
		s.before = append(s.before, seen.Since)
	}
	s.before = s.before[max(len(s.before)-maxLineage, 0):]
	s.memories++
	s.since, s.of = s.memories, memory{since, s.version}
}

// begin begins the memory, if it is new, after the one that the member knows.
func (s *modelStore) begin() {
	if seen := s.seen.Load(); s.before == nil {
		s.before = []string{}
		if seen != nil && seen.Since != "" {
			s.before = append(s.before, seen.Since)
		}
	}
}

func (s *modelStore) saw(newest memory) { s.seen.Store(&newest) }

func (s *modelStore) sync(ctx context.Context, known memory) (syncReply, error) {
	return over(ctx, s, "sync", func() syncReply {
		r := syncReply{
			memory: memory{fmt.Sprint(s.since), s.version}, Of: s.of, Now: s.time().UnixMilli(), Members: s.live(),
		}
		if r.Complete = r.memory == known; !r.Complete {
			now := s.time().UnixMilli()
			r.Page = s.page(fmt.Sprint(now-1, now, 0))
		}
		return r
	})
}

func (s *modelStore) list(ctx context.Context, cursor string) (page, error) {
	return over(ctx, s, "list", func() page { return s.page(cursor) })
}

// page returns a hundred IDs after the cursor, in the order in which they are forgotten, with all that are forgotten
// when the last of these is. It ends at what had moved when all that was left had moved since the first page.
func (s *modelStore) page(cursor string) page {
	var after, began, ends int64
	_, _ = fmt.Sscan(cursor, &after, &began, &ends)
	expires := func(id string) int64 { return s.breakers[id].expires.UnixMilli() }
	ids := slices.DeleteFunc(slices.Collect(maps.Keys(s.breakers)), func(id string) bool { return expires(id) <= after })
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(expires(a), expires(b)) })
	p := page{Since: fmt.Sprint(s.since), IDs: ids, Next: "0"}
	if len(ids) >= maxBatch {
		last := expires(ids[maxBatch-1])
		if ends == 0 && last > began+life.Milliseconds() {
			ends = s.time().Add(life).UnixMilli()
		}
		if ends == 0 || last <= ends {
			p.Next = fmt.Sprint(last, began, ends)
		}
		p.IDs = slices.DeleteFunc(ids, func(id string) bool { return expires(id) > last })
	}
	return p
}

func (s *modelStore) read(ctx context.Context, ids []string) ([]entry, error) {
	return over(ctx, s, "read", func() (all []entry) {
		for _, id := range ids {
			if b := s.breakers[id]; b != nil {
				old := b.expires.Before(s.time().Add(keep))
				if old && (b.State == "isolated" || isListed(id) && !b.isAtRest()) {
					b.expires = s.time().Add(life)
				}
				all = append(all, s.view(id, s.me))
			}
		}
		return all
	})
}

// tell does all in one round trip.
func (s *modelStore) tell(ctx context.Context, all ...news) (replies []entry, err error) {
	if broken := s.fault("tell"); broken.before != nil {
		if err := broken.before(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.travel(ctx); err != nil {
		return nil, err
	}
	there := context.WithValue(ctx, arrived{}, true)
	for _, n := range all {
		var reply entry
		switch n.op {
		case "failure":
			reply, err = s.fail(there, n)
		case "success":
			reply, err = s.success(there, n.breaker.ID, n.at)
		case "recovered":
			reply, err = s.recovered(there, n.breaker, n.at, n.cause)
		case "renew":
			err = s.renew(there, n.breaker)
		case "restore":
			reply, err = s.restore(there, n)
		case "reclose":
			reply, err = s.reclose(there, n.breaker.ID, n.older)
		default:
			err = fmt.Errorf("there is no operation %q", n.op)
		}
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply)
	}
	return replies, s.travel(ctx)
}

func (s *modelStore) room(id string) bool {
	return isListed(id) || s.breakers[id] != nil || len(s.breakers) < maxBreakers
}

func (s *modelStore) open(id string, at, probeAt time.Time, cause string) {
	b := &modelBreaker{
		entry: entry{State: "open", Cause: cause}, failed: make(map[string]turn), probed: make(map[string]turn),
		at: at, probeAt: probeAt, opened: s.time(),
	}
	s.closeNow(id)
	if closed := s.breakers[id]; closed != nil {
		b.reset, b.blind, b.recovered, b.remembered = closed.reset, closed.blind, closed.recovered, closed.remembered
	}
	if s.breakers[id] = b; s.isBlind(id) {
		b.probeAt = latest(probeAt, at)
	}
}

// past returns when something was that a member tells of: now if it doesn't say so, and never later.
func (m *model) past(at time.Time) time.Time {
	if at.IsZero() || at.After(m.time()) {
		return m.time()
	}
	return at
}

func (s *modelStore) failure(
	ctx context.Context, b resilience.FleetBreaker, n, quorum int, probe bool,
) (entry, error) {
	s.mu.Lock()
	heard := s.view(b.ID, s.me).Version
	s.mu.Unlock()
	return s.fail(ctx, news{
		op: "failure", breaker: b, n: n, heard: heard, quorum: quorum, probe: probe,
	})
}

func (s *modelStore) fail(ctx context.Context, n news) (entry, error) {
	return over(ctx, s, "failure", func() entry {
		fb, at := n.breaker, s.past(n.at)
		succeeded := earliest(fb.Succeeded, at)
		b := s.breakers[fb.ID]
		switch {
		case b != nil && (at.Before(b.reset) || b.State == "closed" && at.Before(s.recovery(fb.ID))):
			return s.view(fb.ID, s.me)
		case b != nil && b.State == "open" && n.probe:
			due := at.Add(fb.Config.Cooldown)
			if n.cause == resilience.CauseProbe {
				if n.after > 0 {
					due = latest(due, at.Add(n.after+fb.Config.ProbeInterval))
				}
				b.probeAt = latest(b.probeAt, at.Add(n.after))
				if b.prober == s.me {
					b.prober = ""
				}
				due = earliest(due, b.opened.Add(10*fb.Config.Cooldown))
			} else {
				b.opened = s.time()
			}
			b.last = latest(b.last, at)
			all := s.putOff(b, n.cause, due, s.time().Add(max(fb.Config.ProbeInterval, n.after)+time.Second))
			ends := b.lease == s.me && n.cause == resilience.CauseCalls
			if b.lease == "" || ends || !b.until.After(s.time()) {
				b.lease, b.until, b.vain = "", time.Time{}, 0
			}
			if all {
				return s.changed(fb.ID, s.me, nil)
			}
			s.changed(fb.ID, s.me, func(e *entry) { e.Wait = 10 })
			return s.view(fb.ID, s.me)
		case b != nil && b.State != "closed", !s.room(fb.ID), n.apart != 0 && (b == nil || b.row != n.apart):
			return s.view(fb.ID, s.me)
		case b != nil && at.Before(b.succeeded):
			return s.view(fb.ID, s.me)
		case b != nil && succeeded.After(b.last):
			s.closeNow(fb.ID)
			b = s.breakers[fb.ID]
		}
		if b == nil {
			b = &modelBreaker{entry: entry{State: "closed"}}
			s.breakers[fb.ID] = b
		}

		switch {
		case b.isAtRest():
			b.row, b.by = s.version+1, make(map[string]bool)
		case b.Version != n.heard:
			e := s.view(fb.ID, s.me)
			e.Apart = b.row
			return e
		}
		b.Failures, b.Cause = b.Failures+n.n, "calls"
		b.by[s.me] = true
		b.succeeded = latest(b.succeeded, succeeded)
		opens := b.Failures >= fb.Config.Failures && forgetAbsent(s.model, b.by) >= s.needed(n.quorum)
		last := latest(b.last, at)
		if opens {
			s.open(fb.ID, last.Add(fb.Config.Cooldown), s.time().Add(half(fb)), "calls")
		}
		s.breakers[fb.ID].last = last
		return s.changed(fb.ID, s.me, nil)
	})
}

// putOff makes calls wait before one is the probe, after one of this member that has failed. A member whose Probe has
// failed asks for the next one until then.
func (s *modelStore) putOff(b *modelBreaker, cause resilience.Cause, due, asks time.Time) (all bool) {
	mine := b.failed[s.me].nth
	some, _ := s.owed(b, cause, s.me)
	all = cause == resilience.CauseProbe || !some
	forgetAbsent(s.model, b.failed)
	for member, t := range b.failed {
		if all || t.nth > mine {
			b.failed[member] = turn{t.nth, latest(t.due, due)}
		}
	}
	b.probes++
	if cause == resilience.CauseCalls {
		b.failed[s.me] = turn{b.probes, due}
	} else {
		b.probed[s.me] = turn{b.probes, asks}
	}
	if all {
		b.at = latest(b.at, due)
	}
	return all
}

func (s *modelStore) forget(id string, at time.Time) entry {
	b := s.breakers[id]
	if b == nil || b.State != "closed" || b.Failures == 0 || s.past(at).Before(b.last) {
		return s.view(id, s.me)
	}
	s.closeNow(id)
	return s.changed(id, s.me, nil)
}

func (s *modelStore) success(ctx context.Context, id string, at time.Time) (entry, error) {
	return over(ctx, s, "success", func() entry { return s.forget(id, at) })
}

func (s *modelStore) recovered(
	ctx context.Context, fb resilience.FleetBreaker, at time.Time, cause resilience.Cause,
) (entry, error) {
	return over(ctx, s, "recovered", func() entry {
		b := s.breakers[fb.ID]
		switch {
		case b == nil && !isListed(fb.ID) && len(s.breakers) >= maxBreakers/2,
			b != nil && (b.State == "isolated" || b.State == "open" && s.past(at).Before(b.last)),
			b != nil && b.isAtRest() && !s.past(at).After(s.recovery(fb.ID)):
			return s.view(fb.ID, s.me)
		case b != nil && s.past(at).Before(b.last):
			b.recovered, b.remembered = latest(s.past(at), s.recovery(fb.ID)), s.time().Add(lately)
			return s.view(fb.ID, s.me)
		}
		s.recover(fb.ID, s.past(at))
		if b == nil || b.State != "open" {
			return s.changed(fb.ID, s.me, nil)
		}
		if cause == resilience.CauseProbe {
			s.breakers[fb.ID].blind = s.time().Add(fb.Config.Cooldown)
		}
		return s.changed(fb.ID, s.me, func(e *entry) { e.Cause = cause.String() })
	})
}

func (s *modelStore) lease(
	ctx context.Context, fb resilience.FleetBreaker, cause resilience.Cause,
) (leaseReply, error) {
	return over(ctx, s, "lease", func() leaseReply {
		b, now := s.breakers[fb.ID], s.time()
		switch {
		case b == nil || b.State == "closed":
			return leaseReply{Granted: true}
		case b.State == "isolated":
			return leaseReply{Wait: leaseTerm.Milliseconds()}
		}

		b.lapse(now)
		if cause == resilience.CauseCalls {
			due := s.mayCall(b, fb)
			if b.lease == s.me {
				due = now
			}
			if due.After(now) {
				return leaseReply{Wait: milliseconds(due.Sub(now))}
			}
			if b.lease != s.me {
				s.take(b, fb)
			}
			return leaseReply{Granted: true}
		}

		interval := fb.Config.ProbeInterval
		due := s.mayProbe(b, fb)
		asks := latest(due, now.Add(interval)).Add(interval + time.Second)
		if due.After(now) {
			b.probed[s.me] = turn{b.probed[s.me].nth, asks}
			return leaseReply{Wait: milliseconds(due.Sub(now))}
		}
		b.probes++
		b.probed[s.me], b.probeAt, b.prober, b.hangs = turn{b.probes, asks}, now.Add(half(fb)), s.me, now.Add(interval)
		s.changed(fb.ID, s.me, func(e *entry) { e.Wait, e.Asks = max(milliseconds(b.at.Sub(now)), 0), true })
		return leaseReply{Granted: true}
	})
}

// mayCall returns when a call of the member may be the probe.
func (s *modelStore) mayCall(b *modelBreaker, fb resilience.FleetBreaker) time.Time {
	due := b.turn(s.me).due
	some, since := s.owed(b, resilience.CauseCalls, s.me)
	if out := b.keptOut(s.me); out.After(s.time()) {
		return latest(due, out)
	}
	if !some {
		return due
	}
	if !b.until.After(s.time()) {
		since = latest(since, b.until)
	}
	return latest(due, since.Add(fb.Config.Cooldown/4))
}

// half returns a half of the ProbeInterval, in whole milliseconds.
func half(fb resilience.FleetBreaker) time.Duration {
	return time.Duration(milliseconds(fb.Config.ProbeInterval)+1) / 2 * time.Millisecond
}

// mayProbe returns when the member may call its Probe.
func (s *modelStore) mayProbe(b *modelBreaker, fb resilience.FleetBreaker) time.Time {
	due := b.probeAt
	some, _ := s.owed(b, resilience.CauseProbe, s.me)
	if b.prober != "" && (b.prober != s.me || some) {
		due = latest(due, b.hangs)
	}
	if some {
		due = due.Add(half(fb))
	}
	if b.lease != "" && b.probes == 0 && !b.blind.IsZero() {
		due = latest(due, b.until)
	}
	return due
}

// take gives the member the lease.
func (s *modelStore) take(b *modelBreaker, fb resilience.FleetBreaker) {
	b.lease, b.leased, b.until = s.me, s.time(), s.time().Add(leaseTerm)
	wait := max(leaseTerm, b.at.Sub(s.time()))
	if some, _ := s.owed(b, resilience.CauseCalls, s.me); !some {
		s.changed(fb.ID, s.me, func(e *entry) { e.Wait, e.Asks = wait.Milliseconds(), true })
	}
}

func (s *modelStore) renew(ctx context.Context, fb resilience.FleetBreaker) error {
	_, err := over(ctx, s, "renew", func() struct{} {
		b, now := s.breakers[fb.ID], s.time()
		if b == nil || b.State != "open" {
			return struct{}{}
		}
		if b.lease == s.me {
			ends := now.Add(leaseTerm)
			if last := b.leased.Add(fb.Config.ProbeTimeout - b.vain); last.Before(ends) {
				ends = last
			}
			if ends.After(now) {
				b.until = ends
			}
			return struct{}{}
		}

		b.lapse(now)
		if b.lease == "" && !s.mayCall(b, fb).After(now) {
			s.take(b, fb)
		}
		return struct{}{}
	})
	return err
}

func (s *modelStore) isolateNow(id, reason string, at time.Time) entry {
	s.breakers[id] = &modelBreaker{
		entry: entry{State: "isolated", Cause: "manual", Reason: reason}, isolated: s.past(at),
	}
	return s.changed(id, s.me, nil)
}

func (s *modelStore) isolate(ctx context.Context, id, reason string) (entry, error) {
	return over(ctx, s, "isolate", func() entry { return s.isolateNow(id, reason, s.time()) })
}

func (s *modelStore) reset(ctx context.Context, id string) (entry, error) {
	return over(ctx, s, "reset", func() entry {
		s.breakers[id] = &modelBreaker{entry: entry{State: "closed", Cause: "manual"}, reset: s.time()}
		return s.changed(id, s.me, nil)
	})
}

func (s *modelStore) restore(ctx context.Context, n news) (entry, error) {
	return over(ctx, s, "restore", func() entry {
		fb, isolates := n.breaker, n.breaker.State == resilience.StateIsolated
		b := s.breakers[fb.ID]
		if b != nil && b.Version > n.older && b.State == "open" && !isolates {
			b.last, b.opened = latest(b.last, s.past(n.at)), latest(b.opened, s.past(n.opened))
		}
		switch {
		case b == nil && !s.room(fb.ID):
			return s.view(fb.ID, s.me)
		case b == nil, b.Version <= n.older:
		case b.State == "isolated" || b.State == "open" && !isolates,
			s.wasReset(fb.ID) && !s.past(n.at).After(b.reset),
			!isolates && !s.past(n.at).After(s.recovery(fb.ID)):
			return s.view(fb.ID, s.me)
		}
		if isolates {
			return s.isolateNow(fb.ID, n.reason, n.at)
		}
		wait := max(fb.RetryAfter, 0)
		s.open(fb.ID, s.time().Add(wait), s.time().Add(half(fb)), "calls")
		s.breakers[fb.ID].last, s.breakers[fb.ID].opened = s.past(n.at), s.past(n.opened)
		return s.changed(fb.ID, s.me, nil)
	})
}

func (s *modelStore) reclose(ctx context.Context, id string, older int64) (entry, error) {
	return over(ctx, s, "reclose", func() entry {
		if b := s.breakers[id]; b == nil || b.Version > older {
			return s.view(id, s.me)
		}
		s.closeNow(id)
		return s.changed(id, s.me, nil)
	})
}

func (s *modelStore) compare(ctx context.Context, configs []string) ([]string, error) {
	return over(ctx, s, "compare", func() []string {
		for _, c := range configs {
			s.configs[c] = s.time()
		}
		maps.DeleteFunc(s.configs, func(_ string, heard time.Time) bool { return s.time().Sub(heard) > 60*absence })
		return slices.Collect(maps.Keys(s.configs))
	})
}

func (s *modelStore) leave(ctx context.Context) error {
	_, err := over(ctx, s, "leave", func() struct{} {
		delete(s.members, s.me)
		return struct{}{}
	})
	return err
}

func (s *modelStore) listen(ctx context.Context, l listener) {
	s.mu.Lock()
	s.listeners[s] = l
	s.mu.Unlock()
	l.subscribed()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.listeners, s)
	s.mu.Unlock()
}
