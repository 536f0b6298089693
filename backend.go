package resilience

import (
	"context"
	"sync"
	"time"
)

// ReportBackend reports an answer of the tool's backend to the guarded call that ctx belongs to. Nil is a good answer,
// and an error is read as [Classify] does. [Transport] does this for HTTP; a tracer or interceptor of a database client
// needs one line for it. Don't report the client's own mistakes.
//
// If the tool then fails without an [*Error], a mark or an error of a known type, the last report of the attempt
// decides: trouble is counted, and retried if the tool's [Effect] allows it; a rejected request is the caller's
// mistake; after a good answer the failure is ClassNeutral. After a report a tool that isn't idempotent isn't retried,
// unless err rejects the request or certainly had no effect. ReportBackend does nothing outside of a guarded call, and
// is safe for concurrent use.
func ReportBackend(ctx context.Context, err error) { BeginRequest(ctx)(err) }

// BeginRequest is [ReportBackend] for a request that may change something. From then on a tool that isn't idempotent
// isn't retried, unless end reports that the request certainly had no effect. Only the first call of end counts. Both
// are safe for concurrent use.
func BeginRequest(ctx context.Context) (end func(err error)) {
	r := newRequest(ctx, true)
	if r.by == nil {
		return func(error) {}
	}

	var once sync.Once
	return func(err error) {
		v := readVerdict(err)
		once.Do(func() { r.end(v) })
	}
}

// A verdict is what a backend has answered. It never changes.
type verdict struct {
	class      Class // ClassNeutral for a good answer, ClassInvalid for a rejection; otherwise trouble
	code       Code  // as in a meaning, and so are the next two
	reason     string
	retryAfter time.Duration
	silent     bool // only noEffect is known
	noEffect   bool // the request certainly changed nothing
}

// inTrouble reports whether v means that the backend is in trouble, or limits requests.
func (v *verdict) inTrouble() bool { return v != nil && !v.class.neutral() }

// limits reports whether v means that a rate limit is exhausted.
func (v *verdict) limits() bool { return v != nil && v.code == CodeRateLimited }

// readVerdict returns the verdict on an error that a tool reports, nil if it is no answer.
func readVerdict(err error) *verdict {
	if err == nil {
		return &verdict{class: ClassNeutral}
	}

	m := meaningOf(err)
	if m.class == ClassCanceled || m.unfinished() {
		return nil
	}
	return m.verdict()
}

func (m *meaning) verdict() *verdict {
	class := m.countedClass()
	return &verdict{
		class: class, code: m.code, reason: m.reason, retryAfter: m.retryAfter,
		silent: m.ambiguous && m.weight == weightUnknown, noEffect: m.noEffect || class == ClassInvalid,
	}
}

// A request to a backend belongs to the attempt that makes it, and to all calls around that.
type request struct {
	by      *attempt // nil outside of a guarded call
	changes bool     // it may change something
}

// newRequest begins a request. Until a request that may change something has certainly had no effect, it keeps the
// calls around it from being repeated.
func newRequest(ctx context.Context, changes bool) request {
	r := request{guardedAttempt(ctx), changes}
	r.count(1)
	return r
}

func (r request) count(n int32) {
	for a := r.by; a != nil && r.changes; a = a.outer.guarded() {
		a.scope.changes.Add(n)
	}
}

// end notes the answer, nil if there is none. It decides in the innermost call only.
func (r request) end(v *verdict) {
	if v == nil {
		return
	}
	if v.noEffect {
		r.count(-1)
	}
	if !v.silent && !r.by.over.Load() {
		r.by.report.Store(v)
	}
}
