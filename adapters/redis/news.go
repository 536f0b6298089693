package redisfleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// maxBatch is how many breakers a command concerns at most. A member that comes back may have news of thousands, and
// must neither take as many round trips nor hold up the server for long.
const maxBatch = 100

// news is what a member tells the store of a breaker by an operation of the script. The other fields are for some of
// them.
type news struct {
	op      string
	breaker resilience.FleetBreaker // success and reclose need its ID only

	at     time.Time        // when what is told was, zero if that is now; restore: when an isolation was
	n      int              // failure: how many there were
	heard  int64            // failure: the version of those that the member had heard of
	apart  int64            // failure: which row it wasn't in when it was told before; zero if it wasn't told
	quorum int              // failure
	probe  bool             // failure: of a probe
	cause  resilience.Cause // failure, recovered, lease
	reason string           // restore
	after  time.Duration    // failure of a Probe: the time that the backend has asked for
	opened time.Time        // restore: since when Probes that fail may put calls off
	older  int64            // restore, reclose: the version that the store has gone back to
}

// failed returns news of a failure of a breaker.
func (e *engine) failed(b resilience.FleetBreaker, at time.Time) news {
	return news{op: "failure", breaker: b, at: at, n: 1, quorum: e.quorum}
}

// precision is by how much a success may seem to be earlier than a failure before it of which the store was told when
// the clock was known less well.
const precision = 2 * time.Millisecond

// by returns the news with its times by the store's clock. The store compares what it tells of with the successes of
// others before their failures, and members an isolation with what they have done by hand: none of these is taken to be
// the later one unless it certainly is.
func (n news) by(c serverClock) news {
	at := n.at
	n.at, n.breaker.Succeeded = c.latest(at), c.earliest(n.breaker.Succeeded)
	switch {
	case n.at.IsZero():
	case n.op == "restore":
		n.at, n.opened = c.earliest(at), c.earliest(n.opened)
	case n.op == "success", n.op == "recovered":
		n.at = n.at.Add(precision)
	}
	return n
}

// args returns the arguments of the operation.
func (n news) args() []any {
	b, at := n.breaker, sinceEpoch(n.at)
	switch n.op {
	case "failure":
		probe := 0
		if n.probe {
			probe = 1
		}
		return []any{
			n.n, n.heard, n.apart, b.Config.Failures, n.quorum, milliseconds(b.Config.Cooldown),
			milliseconds(b.Config.ProbeInterval), probe, at, n.cause.String(), sinceEpoch(b.Succeeded), milliseconds(n.after),
		}
	case "recovered":
		return []any{at, n.cause.String(), milliseconds(b.Config.Cooldown)}
	case "lease":
		return []any{
			n.cause.String(), milliseconds(leaseTerm), milliseconds(b.Config.ProbeInterval),
			milliseconds(b.Config.Cooldown / 4),
		}
	case "renew":
		return []any{
			milliseconds(leaseTerm), milliseconds(b.Config.ProbeTimeout), milliseconds(b.Config.Cooldown / 4),
		}
	case "restore":
		return []any{
			b.State.String(), milliseconds(b.RetryAfter), milliseconds(b.Config.ProbeInterval / 2), n.reason,
			at, n.older, sinceEpoch(n.opened),
		}
	case "reclose":
		return []any{n.older}
	default:
		return []any{at}
	}
}

// tell implements store: the script does the operations one after the other.
func (s *redisStore) tell(ctx context.Context, all ...news) ([]entry, error) {
	var ids []string
	var ops []any
	for _, n := range all {
		op := []string{n.op}
		for _, arg := range n.args() {
			op = append(op, fmt.Sprint(arg))
		}
		text, _ := json.Marshal(op) // as texts always can be
		ids, ops = append(ids, n.breaker.ID), append(ops, text)
	}
	replies, err := run[[]entry](ctx, s, "tell", ids, ops...)
	if err != nil {
		return nil, err
	}
	if len(replies) != len(all) {
		return nil, errMixedUp
	}
	for i, n := range all {
		if replies[i].ID != n.breaker.ID && n.op != "renew" { // which returns nothing
			return nil, errMixedUp
		}
	}
	return replies, nil
}

// tell tells the store of as many breakers as it takes at once, calls replied with each reply, and returns what the
// store is to be told again.
func (e *engine) tell(ctx context.Context, batch []news, replied func(news, entry)) (again []news, err error) {
	e.mu.Lock()
	clock := e.clock
	e.mu.Unlock()
	told := make([]news, len(batch))
	for i, n := range batch {
		told[i] = n.by(clock)
	}

	replies, err := bounded(ctx, &e.hanging, func(ctx context.Context) ([]entry, error) {
		return e.store.tell(ctx, told...)
	})
	if err != nil {
		return nil, err
	}
	for i, reply := range replies {
		replied(batch[i], reply)
		if n, ok := e.again(batch[i], reply); ok {
			again = append(again, n)
		}
	}
	return again, nil
}

// tellAll tells the store of any number of breakers, in batches. Leases are renewed meanwhile.
func (e *engine) tellAll(ctx context.Context, all []news, replied func(news, entry)) (again []news, err error) {
	for batch := range slices.Chunk(all, maxBatch) {
		apart, err := e.tell(ctx, batch, replied)
		if err != nil {
			return nil, err
		}
		again = append(again, apart...)
		if err := e.renew(ctx); err != nil {
			return nil, err
		}
	}
	return again, nil
}
