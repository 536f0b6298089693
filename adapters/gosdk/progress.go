package gosdk

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A tracker relates what the tools of a server send to the calls that they belong to. A nil tracker
// tracks nothing. It is safe for concurrent use.
type tracker struct {
	// byToken finds a call by its progress token, because a tool may send progress without the
	// context of its call. It maps a progressToken to a *trackedCall.
	byToken sync.Map

	// What doesn't belong to a call of its client.
	outboxes outboxes
	budget   budget
}

// A progressToken identifies a call whose client wants progress notifications.
type progressToken struct {
	session mcp.Session
	value   any // nil if there is no token
}

// newProgressToken ignores a value of a type that MCP doesn't allow, which may not even be comparable.
func newProgressToken(session mcp.Session, value any) progressToken {
	switch value.(type) {
	case string, int, int64, float64:
		return progressToken{session, value}
	}
	return progressToken{session, nil}
}

// A trackedCall is a call that is under way. A nil trackedCall is one that isn't tracked.
type trackedCall struct {
	tracker  *tracker
	token    progressToken
	timeout  time.Duration // of each attempt
	outboxes outboxes      // what the client is told

	mu       sync.Mutex
	latest   *trackedAttempt
	sent     float64   // the highest progress that was sent
	posting  []float64 // that is about to be
	repeated float64   // the highest that earlier attempts have sent
	answered bool
}

// A trackedAttempt is one attempt of a tracked call, which a tool may go on with when nobody waits for
// it any more.
type trackedAttempt struct {
	call     *trackedCall
	ctx      context.Context // its end is that of the attempt
	patience time.Duration   // with clients that don't read or answer
	budget   budget          // of that
	notes    budget          // a tenth of that, for notifications to be written

	// guarded by call.mu
	returned bool
	blocked  map[mcp.Session]*sending // requests that the tool has gone on without
}

type (
	trackedAttemptKey struct{}
	requesterKey      struct{} // of the session whose request it is
)

// receive returns the context for what serves a request of the session.
func (t *tracker) receive(ctx context.Context, session mcp.Session) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, requesterKey{}, session)
}

// track returns the tracked call of req under a guard. The caller must end it.
func (t *tracker) track(req *mcp.CallToolRequest, g *resilience.Guard) *trackedCall {
	if t == nil {
		return nil
	}

	name := req.Params.Name
	c := &trackedCall{
		tracker: t, token: newProgressToken(req.Session, req.Params.GetProgressToken()),
		timeout: min(g.Timeout(name), cmp.Or(g.AttemptTimeout(name), math.MaxInt64)),
		sent:    math.Inf(-1), repeated: math.Inf(-1),
	}
	if c.token.value != nil {
		t.byToken.Store(c.token, c)
	}
	return c
}

// end says that the call is about to be answered. An answer of the tool's waits until the client has read what it has
// been told before, which takes none of the tool's time, as long as the client reads and waits for the answer. One of
// the guard's, such as a TIMEOUT, waits for nothing, whether or not the tool has returned by then.
func (c *trackedCall) end(ctx context.Context, ofTool bool) {
	if c == nil {
		return
	}

	c.mu.Lock()
	c.answered = true
	c.mu.Unlock()

	if c.token.value != nil {
		c.tracker.byToken.CompareAndDelete(c.token, c)
	}
	if !ofTool || c.outboxes.flush(ctx, c.token.session) != nil {
		c.outboxes.drop(c.token.session)
	}
}

// begin begins an attempt with the context ctx. It returns the context for the tool, and what to call
// when the tool has returned.
func (c *trackedCall) begin(ctx context.Context) (_ context.Context, returned func()) {
	if c == nil {
		return ctx, func() {}
	}

	timeout := c.timeout
	if deadline, ok := ctx.Deadline(); ok { // now: a question to a person puts it off
		timeout = min(timeout, time.Until(deadline))
	}
	a := &trackedAttempt{call: c, ctx: ctx, patience: min(maxWait, timeout/10), notes: budget{share: 100}}
	c.mu.Lock()
	c.latest, c.repeated = a, slices.Max(append([]float64{c.sent}, c.posting...))
	c.mu.Unlock()

	return context.WithValue(ctx, trackedAttemptKey{}, a), func() {
		c.mu.Lock()
		a.returned = true
		c.mu.Unlock()
	}
}

// find returns the attempt that sends progress with the token, or nil. It looks at ctx first, which is
// certain even if a client uses a token twice.
func (t *tracker) find(ctx context.Context, token progressToken) *trackedAttempt {
	if token.value == nil {
		return nil
	}
	if a, ok := ctx.Value(trackedAttemptKey{}).(*trackedAttempt); ok && a.call.token == token {
		return a
	}

	v, ok := t.byToken.Load(token)
	if !ok {
		return nil
	}
	c := v.(*trackedCall)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// isAbandoned reports whether nobody waits for the attempt any more, although its tool still runs.
func (a *trackedAttempt) isAbandoned() bool {
	over := a.ctx.Err() != nil
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return over && !a.returned
}

// advance restarts the timeout of the call, and sends progress with ctx, unless that is withheld. The attempt by, which
// may be of another call, waits for it; what the client is told of this call it reads before the answer to it.
func (a *trackedAttempt) advance(
	ctx context.Context, progress float64, m message, by *trackedAttempt,
) (res mcp.Result, err error) {
	resilience.ReportProgress(a.ctx) // without the lock: it asks the contexts of middleware
	if a.isWithheld(progress) {
		return nil, nil
	}

	posts, sent := false, false
	m.isDue = func() bool { posts = a.posts(progress); return posts }
	defer func() { // also if other middleware panics
		if posts {
			a.call.posted(progress, sent)
		}
	}()
	if by.call.token.session == a.call.token.session {
		res, err = by.tell(ctx, m, &a.call.outboxes)
	} else {
		res, err = a.call.tracker.tellOther(ctx, m, by)
	}
	sent = err == nil
	return res, err
}

// posts notes that progress is about to be sent, unless it is withheld by now, as another attempt may have begun.
func (a *trackedAttempt) posts(progress float64) bool {
	c := a.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.withholds(progress) {
		return false
	}
	if !math.IsNaN(progress) && !math.IsInf(progress, 0) { // JSON has neither, so they won't be sent
		c.posting = append(c.posting, progress)
	}
	return true
}

// posted notes whether what was about to be sent has been sent, or will be.
func (c *trackedCall) posted(progress float64, sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.posting, progress)
	if i < 0 {
		return
	}
	c.posting = slices.Delete(c.posting, i, i+1)
	if sent {
		c.sent = max(c.sent, progress)
	}
}

func (a *trackedAttempt) isWithheld(progress float64) bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return a.withholds(progress)
}

// withholds reports whether progress isn't sent. MCP requires that progress increases, so what an earlier
// attempt has sent isn't repeated, and that it ends with the answer, after which an abandoned tool is
// silent. All else is the tool's affair, as without a guard. call.mu must be held.
func (a *trackedAttempt) withholds(progress float64) bool {
	c := a.call
	if c.answered {
		return !a.returned
	}
	return a != c.latest || progress <= c.repeated
}

// NotifyProgress notifies the client of how far a call has come, if it asked for that. It takes the
// context and the request that the handler received. A total that isn't positive is unknown, and an empty
// message is left out.
//
// Behind [Middleware] alone it also restarts the call's timeout, as [resilience.ReportProgress] does.
// Behind [Protect] every notification does so, and an error may also mean that the client doesn't read. Errors are
// marked by [resilience.MarkNeutral]: they say nothing about the tool's backend.
func NotifyProgress(ctx context.Context, req *mcp.CallToolRequest, progress, total float64, message string) error {
	resilience.ReportProgress(ctx)
	token := req.Params.GetProgressToken()
	if token == nil || req.Session == nil {
		return nil
	}
	return resilience.MarkNeutral(req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: progress, Total: max(total, 0), Message: message,
	}))
}
