package resilience

// A slotQueue says which of the calls that could be the probe leave the slot to another one. A call that is the
// probe time and again, and tells nothing of the backend, would keep a half-open breaker rejecting for ever:
//
//   - What is within the probe itself is rejected. A call on the breaker of a call around it belongs to that
//     call; but nothing tells it so if the tool has lost its context, or calls Allow.
//   - A client whose calls end as its own mistakes, or which leaves, gives the slot back, and may be the first
//     one to ask for it again.
//
// If such a probe has stood in the way of another call, then from then on one more call leaves the slot, since
// calls may be within each other. A slotQueue is guarded by the mutex of its breaker.
type slotQueue struct {
	leave     int  // how many calls leave the slot
	left      int  // how many have, since a call has kept it
	contended bool // a call was rejected because of the probe under way
	failures  int  // of probes that were contended
}

const (
	// maxContended is how many probes may fail and be contended, as any is in a busy server, before one of
	// them leaves the slot although its error holds no rejection: the tool may have made other words of it.
	maxContended = 10

	// maxLeave bounds the calls that leave the slot.
	maxLeave = 8
)

// leaves reports whether a call that could be the probe leaves the slot to another one.
func (q *slotQueue) leaves() bool {
	q.contended = false
	if q.left >= q.leave {
		return false
	}
	q.left++
	return true
}

// ended is called for a call that has kept the slot, with what it tells of the backend. rejected says that its
// error holds the rejection of another call.
func (q *slotQueue) ended(o outcome, rejected bool) {
	if q.contended && o == outcomeFailure {
		q.failures++
	}
	if q.contended && (o == outcomeNeutral || rejected || q.failures == maxContended) {
		q.leave, q.failures = min(q.leave+1, maxLeave), 0
	}
	q.left, q.contended = 0, false
}

// changed is called for each change of the breaker's state.
func (q *slotQueue) changed(to State) {
	q.left = 0
	if to == StateClosed {
		*q = slotQueue{}
	}
}
