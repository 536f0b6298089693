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
	trial     int  // how many more do, once
	left      int  // how many have, since a call has kept it
	contended bool // a call was rejected because of the probe under way
	failures  int  // of probes that were contended
}

const (
	// maxContended is how many probes fail and are contended, as any is in a busy server, before a call leaves
	// the slot once, although no error holds a rejection: the tool may have made other words of it. After as
	// many more, two calls leave it once, and so on.
	maxContended = 10

	// maxTrial and maxLeave bound the calls that leave the slot.
	maxTrial = 3
	maxLeave = 8
)

// leaves reports whether a call that could be the probe leaves the slot to another one.
func (q *slotQueue) leaves() bool {
	q.contended = false
	if q.left >= q.leave+q.trial {
		return false
	}
	q.left++
	return true
}

// ended is called for a call that has kept the slot, with what it tells of the backend, and whether that still
// counts. rejected says that its error holds the rejection of another call.
func (q *slotQueue) ended(o outcome, rejected, counts bool) {
	q.trial = 0
	switch {
	case !counts || !q.contended:
	case o == outcomeNeutral || rejected:
		q.leave = min(q.leave+1, maxLeave)
	case o == outcomeFailure:
		q.failures++
		if q.failures%maxContended == 0 {
			q.trial = min(q.failures/maxContended, maxTrial)
		}
	}
	q.left = 0
}

// changed is called for each change of the breaker's state.
func (q *slotQueue) changed(to State) {
	q.left = 0
	if to == StateClosed {
		*q = slotQueue{}
	}
}
