package resilience

import (
	"context"
	"sync"
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
//     RetryAfter of err is passed on, if the call may be repeated.
//   - A rejection is the caller's mistake, which is neither counted nor retried.
//   - After a good answer the failure is the tool's own: ClassNeutral, neither counted nor retried,
//     unless its error tells of trouble, such as a connection that was reset while the answer was read.
//     So what a tool tidies up after a failure should not report, or the tool mark its error.
//
// A tool says itself what its failure means by an [*Error], a mark such as [MarkPermanent], or
// [ErrUnfinished]. A report of context.Canceled says nothing, and neither does an answer that says nothing to
// Classify, such as the SQLSTATE 57014 of a statement that was canceled, nor one of an attempt that is
// over; that a [WithTimeout] within the attempt is over makes no difference. A report ends at the innermost
// guarded call: those around it hear only that something may have changed.
//
// What was reported may have changed something, unless err rejects it or certainly had no effect, as
// [MarkTransient] says. A tool that isn't idempotent isn't retried then.
//
// Outside of a guarded call ReportBackend does nothing. It is safe for concurrent use; methods of err are
// called before it returns, and their panics are recovered.
//
// Report only what the backend has said: clients also return mistakes of their own, such as an argument
// that can't be encoded, which would count as trouble. The module examples/backends of this repository
// shows reports for the clients of common backends.
func ReportBackend(ctx context.Context, err error) {
	BeginRequest(ctx)(err)
}

// BeginRequest is ReportBackend for a request that may change something, from its beginning on: until end is
// called, and afterwards unless the request certainly had no effect, a tool that isn't idempotent isn't
// retried. end reports what the backend has said, and says nothing with context.Canceled; a request may go on
// without an end. Only the first call of end counts. Both are safe for concurrent use.
func BeginRequest(ctx context.Context) (end func(err error)) {
	if innermost(ctx) == nil {
		return func(error) {}
	}

	r := newRequest(ctx, true)
	var ended atomic.Bool
	return func(err error) {
		if !ended.Swap(true) {
			r.end(readVerdict(err))
		}
	}
}

// A verdict is what a backend has said. It never changes.
type verdict struct {
	class      Class // ClassNeutral: fine, ClassInvalid: rejected; otherwise it is in trouble
	code       Code
	lost       string // why the connection is lost; empty if it isn't
	retryAfter time.Duration
	silent     bool // it only says what follows
	noEffect   bool // the request has certainly changed nothing
	refused    bool // the backend has certainly not seen the request
}

// fine is what a good answer says.
var fine = &verdict{class: ClassNeutral}

// inTrouble reports whether v says that the backend is in trouble.
func (v *verdict) inTrouble() bool { return v != nil && !v.class.neutral() }

// readVerdict returns what err, which a tool reports, says of a backend, nil if that is nothing.
func readVerdict(err error) *verdict {
	if err == nil {
		return fine
	}

	d := diagnose(err, nil)
	if d.class == ClassCanceled || d.unfinished || !d.said && d.sign == signSilent && d.lost == "" {
		return nil
	}
	return &verdict{
		class: d.class, code: d.code, lost: d.lost, retryAfter: d.retryAfter,
		noEffect: d.noEffect || d.class == ClassInvalid, refused: d.noEffect,
	}
}

// A request is one to a backend, as the attempt that makes it and those around it know it.
type request []requestAttempt

type requestAttempt struct {
	ctx    *callContext
	log    *attemptLog
	number int // among the changes of ctx; zero if it changes nothing
}

// newRequest begins a request, of an attempt that must end it. Until then, and afterwards unless it has
// certainly changed nothing, none of the calls around it may be repeated as if nothing had been done.
func newRequest(ctx context.Context, changes bool) (r request) {
	for c := innermost(ctx); c != nil; c = c.outer() {
		a := requestAttempt{ctx: c, log: logOf(ctx, c)}
		if changes {
			a.number = c.backend.changes.begin()
		}
		r = append(r, a)
		ctx = c.parent
	}
	return r
}

// end says what became of the request, nil if nothing is known. The innermost call of a guard counts it, so
// that the calls around that hear nothing of it. A function that WithTimeout has abandoned may say so late: that is of
// the end of its time, and what the attempt around it has heard since is newer.
func (r request) end(v *verdict) {
	says := v != nil && !v.silent
	asOf, late := time.Now(), false
	for _, a := range r {
		if v != nil && v.noEffect {
			a.ctx.backend.changes.undo(a.number)
		}
		if !says {
			continue
		}
		switch end := a.ctx.ending.Load(); {
		case end == nil:
			a.log.tell(&told{v, asOf}, late)
			says = a.ctx.ticket == nil
		case a.ctx.isAttempt():
			says = false
		case end != returned:
			asOf, late = end.at, true
		case !late: // nothing tells when it was
			asOf, late = a.ctx.start, true
		}
	}
}

// isAttempt reports whether c is the context of an attempt, or of all attempts of a call, rather than of WithTimeout,
// whose end is none of the attempt around it.
func (c *callContext) isAttempt() bool { return c.attempt.Load() > 0 || c.ticket != nil }

// changes are the requests of a call that may have changed something, whichever attempt has begun them. An
// attempt that fails and has certainly changed nothing forgives those that had begun by then: they don't count
// any more.
type changes struct {
	mu       sync.Mutex
	begun    int // all of them; a request's number is what it was at its beginning
	forgiven int // the number of the last one that is forgiven
	open     int // those after it that haven't turned out to have changed nothing
}

// begin counts a request, and returns its number.
func (c *changes) begin() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	c.open++
	return c.begun
}

// undo takes a request back that has changed nothing. One that could not has the number zero.
func (c *changes) undo(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number > c.forgiven {
		c.open--
	}
}

// look returns how many have begun, and whether something may have been changed.
func (c *changes) look() (begun int, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun, c.open > 0
}

// forgive forgives all requests, unless one has begun since begun was seen.
func (c *changes) forgive(begun int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun != begun {
		return false
	}
	c.forgiven, c.open = begun, 0
	return true
}

// A backendLog keeps what backends have said in the attempts of a call.
type backendLog struct {
	changes     changes
	first       attemptLog                 // of the first attempt, or of the only one
	later       atomic.Pointer[attemptLog] // of the last of the attempts that share the context; nil before the second
	unexplained Class                      // of a failure of which nothing is known
}

// An attemptLog keeps what backends have said last during an attempt.
type attemptLog struct {
	last atomic.Pointer[told] // nil before the first
}

// told is a verdict of this time.
type told struct {
	*verdict
	at time.Time
}

// tell notes a verdict. One that is late is noted only if there is none since.
func (l *attemptLog) tell(t *told, late bool) {
	for {
		last := l.last.Load()
		if late && last != nil && !last.at.Before(t.at) {
			return
		}
		if l.last.CompareAndSwap(last, t) {
			return
		}
	}
}

// logOf returns the log of the attempt that ctx belongs to, of the innermost call c.
func logOf(ctx context.Context, c *callContext) *attemptLog {
	log, _ := ask(func() any { return ctx.Value(logKey{}) }).(*attemptLog)
	if log == nil {
		return &c.backend.first
	}
	return log
}

// current returns the log of the attempt under way.
func (l *backendLog) current() *attemptLog {
	if log := l.later.Load(); log != nil {
		return log
	}
	return &l.first
}

// isCurrent reports whether ctx, of the innermost call c, belongs to the attempt under way rather than to an earlier
// one.
func (c *callContext) isCurrent(ctx context.Context) bool {
	later := c.backend.later.Load()
	return later == nil || logOf(ctx, c) == later
}

// last returns the last verdict of the attempt under way, nil if there is none.
func (l *backendLog) last() *verdict {
	if last := l.current().last.Load(); last != nil {
		return last.verdict
	}
	return nil
}

// call returns the context of the call that c, which may be that of an attempt, belongs to.
func (c *callContext) call() *callContext {
	if outer, ok := c.parent.(*callContext); ok && c.ticket == nil {
		return outer
	}
	return c
}

// blame adds to the facts of a tool's error what the backend has said, which a crash makes no difference to. It
// returns how many requests of the call have begun.
func (c *callContext) blame(f *facts) (begun int) {
	l := &c.backend
	begun, changed := c.call().backend.changes.look()
	v := l.last()
	if v != nil || changed || l.unexplained != ClassTransient || f.bareCancel() {
		f.addBlamed(&blamed{f.err, v, changed, l.unexplained, false})
	}
	return begun
}
