package resilience

import (
	"context"
	"sync"
)

// ReportBackend reports an answer of the tool's backend to the guarded call that ctx belongs to. Nil is a good answer,
// and an error is read as [Classify] does. [Transport] does this for HTTP; a tracer or interceptor of a database client
// needs one line for it. Don't report the client's own mistakes.
//
// If the tool then fails without an [*Error], a mark or an error of a known type, the last report of the attempt
// decides: trouble is counted, and retried if the tool's [Effect] allows it; a rejected request is the caller's
// mistake; after a good answer the failure is ClassNeutral. After a report a tool that isn't idempotent isn't retried,
// unless err rejects the request or certainly had no effect. ReportBackend is safe for concurrent use.
func ReportBackend(ctx context.Context, err error) { BeginRequest(ctx)(err) }

// BeginRequest is [ReportBackend] for a request that may change something. From then on a tool that isn't idempotent
// isn't retried, unless end reports that the request certainly had no effect. Only the first end counts. Both are safe
// for concurrent use.
func BeginRequest(ctx context.Context) (end func(err error)) {
	r := newRequest(ctx, true)
	if r.by == nil {
		return func(error) {}
	}

	var once sync.Once
	return func(err error) {
		m := readReport(err)
		once.Do(func() { r.end(m) })
	}
}

// inTrouble reports whether a report means that the backend is in trouble, or limits requests. It may be nil.
func (m *meaning) inTrouble() bool { return m != nil && !m.countedClass().neutral() }

// limits reports whether a report, which may be nil, means that a rate limit is exhausted.
func (m *meaning) limits() bool { return m != nil && m.code == CodeRateLimited }

// readReport returns what a tool reports, nil if it is no answer.
func readReport(err error) *meaning {
	if err == nil {
		return &meaning{class: ClassNeutral}
	}

	m := meaningOf(err)
	if m.class == ClassCanceled || m.unfinished() {
		return nil
	}
	m.noEffect = m.noEffect || m.countedClass() == ClassInvalid
	return &m
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
func (r request) end(answer *meaning) {
	if answer == nil {
		return
	}
	if answer.noEffect {
		r.count(-1)
	}
	silent := answer.ambiguous && answer.weight == weightUnknown
	if !silent && !r.by.over.Load() {
		r.by.report.Store(answer)
	}
}
