package gosdk

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

const (
	// maxWait is how long the messages of an attempt, except questions, wait for clients that don't read or answer, and
	// at most a tenth of the attempt's time. A tenth of the time that passes meanwhile is added. A message may wait for
	// minWait even so, which a client that reads may need, but all that do wait for as long again, or minWait.
	maxWait = time.Second
	minWait = 10 * time.Millisecond

	// graceTime is how long a question still waits after its context has ended.
	graceTime = 100 * time.Millisecond
)

var errNotReading = errors.New("gosdk: the client doesn't read what it is sent, or doesn't answer")

// middleware is sending middleware. While a client asks its user, it pauses the timeout of the call, also where the SDK
// sends the questions of a result to a client of an older protocol. Each progress notification restarts the timeout of
// its call.
func (t *tracker) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	next = neutral(next)
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		a, _ := ctx.Value(trackedAttemptKey{}).(*trackedAttempt)
		m := message{method, req, next}
		if asksPerson(method) {
			if a != nil && a.isAbandoned() {
				return nil, a.ctx.Err() // the next attempt may ask the same
			}
			if err := checkQuestion(req.GetParams()); err != nil {
				return nil, err
			}
			defer resilience.Pause(ctx)() // the guard doesn't retry a call that has been paused
		}

		if note, _ := req.GetParams().(*mcp.ProgressNotificationParams); note != nil {
			if of := t.find(ctx, newProgressToken(req.GetSession(), note.ProgressToken)); of != nil {
				return of.advance(ctx, note.Progress, m, cmp.Or(a, of))
			}
		}
		return t.send(ctx, m, a)
	}
}

// send sends a message of an attempt, which may be nil. What is sent to the client whose request is served doesn't wait
// behind other messages: over HTTP, each request has a stream of its own. What isn't a tool's is sent as without a
// guard.
func (t *tracker) send(ctx context.Context, m message, a *trackedAttempt) (mcp.Result, error) {
	own := !m.isNotification() || ctx.Value(requesterKey{}) == any(m.req.GetSession())
	switch {
	case a != nil && (own || a.call.token.session == m.req.GetSession()):
		return a.send(ctx, m)
	case own:
		return m.send(ctx)
	}
	return t.outboxes.send(ctx, m, a)
}

// A message is one to a client.
type message struct {
	method string
	req    mcp.Request
	next   mcp.MethodHandler
}

func (m message) send(ctx context.Context) (mcp.Result, error) { return m.next(ctx, m.method, m.req) }

func (m message) isNotification() bool { return isNotification(m.method) }

func isNotification(method string) bool { return strings.HasPrefix(method, "notifications/") }

// neutral marks errors of what a server sends to its client, such as that the user doesn't answer in time or that the
// client is gone: they say nothing about the backend of the tool, whatever that makes of them. A direct
// *jsonrpc.Error of a request stays one, of which the SDK keeps the data if a handler returns it. Nobody answers a
// notification with data.
func neutral(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		_, direct := err.(*jsonrpc.Error)
		if direct && !isNotification(method) {
			return res, err
		}
		return res, resilience.MarkNeutral(err)
	}
}

// send sends a message and waits for it, as the SDK does; but its writing blocks while the client doesn't read,
// whatever becomes of the context. So that no client can make a tool seem to hang, the attempt goes on without a
// message for which it has waited too long, and sends nothing more to that client until it has read it.
func (a *trackedAttempt) send(ctx context.Context, m message) (mcp.Result, error) {
	wait, limited := a.wait(m)
	if !limited {
		return m.send(ctx)
	}
	if wait == 0 {
		return nil, resilience.MarkNeutral(errNotReading)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // nobody waits for the answer to a ping any more
	s := &sending{done: make(chan struct{})}
	begun := time.Now()
	go s.run(func() (mcp.Result, error) { return m.send(ctx) })
	err := s.wait(ctx, wait)
	if !asksPerson(m.method) {
		a.spend(begun)
	}
	if err != nil {
		a.leave(m.req.GetSession(), s)
		return nil, err
	}
	return s.result()
}

// wait returns how long a message may take: for ever, if it is a question; zero if the client hasn't read an earlier
// one yet, or if too much time is spent. What is left of a tool that has returned may take as long as it likes.
func (a *trackedAttempt) wait(m message) (wait time.Duration, limited bool) {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	switch s := a.blocked[m.req.GetSession()]; {
	case a.returned:
		return 0, false
	case s != nil && !s.isOver():
		return 0, true
	case asksPerson(m.method):
		return math.MaxInt64, true
	}

	most := maxWait
	if deadline, ok := a.ctx.Deadline(); ok {
		most = min(most, deadline.Sub(a.begun)/10)
	}
	left := most - a.spentBy(time.Now())
	if -left >= max(most, minWait) {
		return 0, true
	}
	return max(left, minWait), true
}

// spentBy returns how long the attempt has waited for clients, less a tenth of the time since. a.call.mu must be held.
func (a *trackedAttempt) spentBy(now time.Time) time.Duration {
	return max(a.spent-now.Sub(a.spentAt)/10, 0)
}

// spend notes that the attempt has waited for a client since begun. Other messages may have waited meanwhile: the SDK
// writes one at a time.
func (a *trackedAttempt) spend(begun time.Time) {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	now := time.Now()
	if begun.Before(a.spentAt) {
		begun = a.spentAt
	}
	a.spent, a.spentAt = a.spentBy(begun)+now.Sub(begun), now
}

// leave notes that the attempt goes on without a message.
func (a *trackedAttempt) leave(session mcp.Session, s *sending) {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if a.blocked == nil {
		a.blocked = make(map[mcp.Session]*sending)
	}
	a.blocked[session] = s
}

// A sending is a message to a client that is being sent.
type sending struct {
	done chan struct{} // closed once the following are set

	res      mcp.Result
	err      error
	returned bool // rather than panicked, or called runtime.Goexit
	panicked any
}

// isOver reports whether the message has been sent, or can't be.
func (s *sending) isOver() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// wait waits for the message, but not for long once ctx has ended. It returns an error if the message isn't over.
func (s *sending) wait(ctx context.Context, atMost time.Duration) error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-s.done:
		return nil
	case <-timer.C:
		return resilience.MarkNeutral(errNotReading)
	case <-ctx.Done():
	}

	timer.Reset(min(atMost, graceTime))
	select {
	case <-s.done:
		return nil
	case <-timer.C:
		return resilience.MarkNeutral(ctx.Err())
	}
}

func (s *sending) run(f func() (mcp.Result, error)) {
	defer close(s.done)
	defer func() {
		if !s.returned {
			s.panicked = recover()
		}
	}()
	s.res, s.err = f()
	s.returned = true
}

// result does what the function has done that sent the message. It must have come to an end.
func (s *sending) result() (mcp.Result, error) {
	switch {
	case s.returned:
		return s.res, s.err
	case s.panicked != nil:
		panic(s.panicked) // of other middleware
	}
	runtime.Goexit()
	panic("unreachable")
}
