package resilience

import (
	"context"
	"sync/atomic"
	"time"
)

// ReportBackend tells the call to which ctx belongs what the tool's backend has said: nil is a good
// answer, and an error is read as [Classify] does. One that is marked [MarkInvalid], or whose type says
// so, is an answer that rejects the request; any other is trouble, or no answer. [Transport] does so for
// HTTP, and a tracer or an interceptor of a database's client needs one line for it.
//
// If the tool then fails, without saying itself what that means, the last report of the attempt decides:
//
//   - Trouble is the backend's failure: it is counted, and retried if the tool's [Effect] allows it. A
//     RetryAfter of err is passed on.
//   - A rejection is the caller's mistake, which is neither counted nor retried.
//   - After a good answer the failure is the tool's own: ClassNeutral, neither counted nor retried,
//     unless its error tells of trouble, such as a connection that was lost while the answer was read.
//
// A tool says itself what its failure means by an [*Error], a mark such as [MarkPermanent], or
// [ErrUnfinished]. A report of context.Canceled says nothing, and neither does one of an attempt that is
// over. Outside of a guarded call ReportBackend does nothing. It is safe for concurrent use; methods of
// err are called before it returns, and their panics are recovered.
//
// Report only what the backend has said: clients also return mistakes of their own, such as an argument
// that can't be encoded, which would count as trouble. The module examples/backends of this repository
// shows reports for the clients of common backends.
func ReportBackend(ctx context.Context, err error) {
	if innermost(ctx) != nil {
		reportBackend(ctx, readVerdict(err))
	}
}

// A verdict is what a backend has said. It never changes.
type verdict struct {
	// class is ClassNeutral for a good answer, ClassInvalid for a rejection, and ClassCanceled for nothing.
	// Otherwise the backend is in trouble.
	class      Class
	code       Code
	lost       string // why the connection is lost; empty if it isn't
	retryAfter time.Duration
	noEffect   bool // the request has certainly changed nothing

	// affected is whether a request of the attempt, this one or an earlier one, may have changed
	// something.
	affected bool
}

// fine is what a good answer says to a request that may have changed something.
var fine = &verdict{class: ClassNeutral, affected: true}

// inTrouble reports whether v says that the backend is in trouble.
func (v *verdict) inTrouble() bool { return v != nil && !v.class.neutral() }

// readVerdict returns what err, which a tool reports, says of a backend, nil if that is nothing.
func readVerdict(err error) (v *verdict) {
	if err == nil {
		return fine
	}

	defer func() {
		if recover() != nil {
			v = nil
		}
	}()
	d := diagnose(treeOf(err), nil)
	if d.unfinished {
		return nil
	}
	return &verdict{
		class: d.class, code: d.code, lost: d.lost, retryAfter: d.retryAfter,
		noEffect: d.noEffect || d.class == ClassInvalid,
		affected: !d.noEffect && d.class != ClassInvalid,
	}
}

// reportBackend makes v the last verdict of the attempt to which ctx belongs, and of those around it that
// aren't over.
func reportBackend(ctx context.Context, v *verdict) {
	if v == nil {
		return
	}
	for c := innermost(ctx); c != nil && !c.over(); c = c.outer() {
		c.backend.add(v)
	}
}

// A backendLog keeps what the backend has said during an attempt.
type backendLog struct {
	last        atomic.Pointer[verdict] // nil before the first
	unexplained Class                   // of a failure of which nothing is known
}

func (l *backendLog) add(v *verdict) {
	for {
		last := l.last.Load()
		if l.last.CompareAndSwap(last, last.followedBy(v)) {
			return
		}
	}
}

// followedBy returns the last verdict of an attempt after a further one.
func (v *verdict) followedBy(next *verdict) *verdict {
	last, other := next, v
	if v != nil && next.class == ClassCanceled {
		last, other = v, next
	}
	if other == nil || last.affected || !other.affected {
		return last
	}

	both := *last
	both.affected = true
	return &both
}

// forget begins a new attempt.
func (l *backendLog) forget() { l.last.Store(nil) }

// blame adds to a tool's error what the backend has said. It leaves a crash as it is.
func (l *backendLog) blame(t errorTree) errorTree {
	last := l.last.Load()
	if isCrash(t.err) || last == nil && l.unexplained == ClassTransient {
		return t
	}
	return errorTree{&blamed{t.err, last, l.unexplained}, []errorTree{t}}
}
