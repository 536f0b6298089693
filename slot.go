package resilience

import "math/bits"

// A slotQueue says which of the calls that could be the probe leave the slot to another one. A call that is the
// probe time and again, and tells nothing of the backend, would keep a half-open breaker rejecting for ever:
//
//   - What is within the probe itself is rejected. A call on the breaker of a call around it belongs to that
//     call; but nothing tells it so if the tool has lost its context, or calls Allow.
//   - Clients whose calls end as their own mistakes, or which leave, give the slot back, and may be the first
//     ones to ask for it again.
//
// If such a probe has stood in the way of another call, then from then on twice as many calls leave the slot, since
// calls may be within each other, and a client may make several at once. Soon these are as many as there are, and
// another call has its turn. For each failure that tells of the backend they are halved, down to one. A slotQueue is
// guarded by the mutex of its breaker.
type slotQueue struct {
	leave     int  // how many calls leave the slot
	trial     int  // how many more do, once
	left      int  // how many have, since a call has kept it
	contended bool // a call was rejected because of the probe under way
	failures  int  // of probes that were contended
}

const (
	// maxContended is how many probes fail and are contended, as any is in a busy server, before calls leave the
	// slot once, although no error holds a rejection: the tool may have made other words of it. See trials.
	maxContended = 10

	// maxTrial bounds how many calls then leave it, and maxLeave how many do otherwise.
	maxTrial = 64
	maxLeave = 256
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

// ended is called for a call that could be the probe, and whose end counts, with what it tells of the backend. kept
// says that it has kept the slot, and rejected that its error holds the rejection of another call.
func (q *slotQueue) ended(o outcome, rejected, kept bool) {
	stoodInTheWay := kept && q.contended
	q.left, q.trial = 0, 0 // a call that has left the slot has changed the breaker

	switch {
	case stoodInTheWay && (o == outcomeNeutral || rejected):
		q.leave = min(max(2*q.leave, 1), maxLeave)
	case o == outcomeFailure:
		q.leave -= q.leave / 2
		if stoodInTheWay {
			q.failures++
			q.trial = q.trials()
		}
	}
}

// trials returns how many calls leave the slot once after so many failures: after every tenth one call, after every
// twentieth two, after every fortieth four, and so on. However deeply calls are within each other, some time these are
// enough, but a backend that is dead for long gets few of them.
func (q *slotQueue) trials() int {
	if q.failures%maxContended != 0 {
		return 0
	}
	return min(1<<bits.TrailingZeros(uint(q.failures/maxContended)), maxTrial)
}

// changed is called for each change of the breaker's state.
func (q *slotQueue) changed(to State) {
	q.left = 0 // calls of before the change leave the slot to none
	if to == StateClosed {
		*q = slotQueue{}
	}
}
