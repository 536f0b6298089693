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
	// maxWait is how long the pings of an attempt wait for their answers, and its notifications for room in a full outbox,
	// in sum, and at most a tenth of the attempt's timeout, which neither progress nor a question may make longer. For
	// being written, notifications wait for a tenth of that.
	maxWait = time.Second

	// maxOthersWait is how long all that doesn't belong to a call of its client waits, in sum.
	maxOthersWait = 100 * time.Millisecond

	// graceTime is how long a question still waits after its context has ended.
	graceTime = 100 * time.Millisecond
)

var errNotReading = errors.New("gosdk: the client doesn't read what it is sent, or doesn't answer, in the time that there is")

// middleware is sending middleware. While a client asks its user, it pauses the timeout of the call, also where the SDK
// sends the questions of a result to a client of an older protocol. Each progress notification restarts the timeout of
// its call.
func (t *tracker) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	next = neutral(next)
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		a, _ := ctx.Value(trackedAttemptKey{}).(*trackedAttempt)
		m := message{method: method, req: req, next: next}
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
	session := m.req.GetSession()
	own := !m.isNotification() || ctx.Value(requesterKey{}) == any(session) || a != nil && a.call.token.session == session
	switch {
	case own && a == nil:
		return m.send(ctx)
	case own && m.isNotification():
		return a.tell(ctx, m, &a.call.outboxes)
	case own:
		return a.request(ctx, m)
	}
	return t.tellOther(ctx, m, a)
}

// tellOther sends a notification that doesn't belong to a call of its client: one to another session, or one that is
// sent without the context of a call, as the SDK does for Server.ResourceUpdated. The attempt, which may be nil, waits
// no longer for that than for its own client.
func (t *tracker) tellOther(ctx context.Context, m message, a *trackedAttempt) (mcp.Result, error) {
	wait := t.budget.begin(maxOthersWait)
	defer t.budget.end()
	if a != nil {
		left, _, end := a.beginNote()
		defer end()
		wait = min(wait, left)
	}
	return t.outboxes.send(ctx, m, wait, minWait)
}

// tell sends a notification to the client of the call, by the outboxes of that or of another one of the same client.
func (a *trackedAttempt) tell(ctx context.Context, m message, by *outboxes) (mcp.Result, error) {
	wait, room, end := a.beginNote()
	defer end()
	return by.send(ctx, m, wait, room)
}

// beginNote is begin for a notification. It returns for how long that waits to be written, and for room in an outbox.
func (a *trackedAttempt) beginNote() (wait, room time.Duration, end func()) {
	room, endRoom := a.begin()
	wait = a.notes.begin(a.patience / 10)
	end = func() {
		a.notes.end()
		endRoom()
	}
	if room == math.MaxInt64 {
		return room, minWait, end
	}
	return min(wait, room), room, end
}

// begin lets a sender of the attempt wait for its clients until end is called, and returns for how long. A tool that has
// returned may wait as long as it likes.
func (a *trackedAttempt) begin() (left time.Duration, end func()) {
	left = a.budget.begin(a.patience)
	if a.hasReturned() {
		return math.MaxInt64, a.budget.end
	}
	return left, a.budget.end
}

// A message is one to a client.
type message struct {
	method string
	req    mcp.Request
	next   mcp.MethodHandler
	isDue  func() bool // asked once, as it comes into its outbox: otherwise it isn't sent; nil if it always is
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

// request sends a request and waits for the answer, as the SDK does; but its writing blocks while the client doesn't
// read, whatever becomes of the context. So that no client can make a tool seem to hang, the attempt goes on without an
// answer for which it has waited too long, and sends that client no other ping until it has read the request. A person
// is waited for for ever, once the client has read what it was told and asked before.
func (a *trackedAttempt) request(ctx context.Context, m message) (mcp.Result, error) {
	if a.hasReturned() {
		return m.send(ctx)
	}
	session, wait := m.req.GetSession(), time.Duration(math.MaxInt64)
	if asksPerson(m.method) {
		if err := a.flush(ctx, session); err != nil {
			return nil, err
		}
	} else {
		left, end := a.begin()
		defer end()
		wait = left
		if wait == 0 || a.blockedBy(session) != nil {
			return nil, resilience.MarkNeutral(errNotReading)
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // nobody waits for the answer to a ping any more
	s := newSending()
	go func() {
		defer close(s.done)
		s.run(func() (mcp.Result, error) { return m.send(ctx) })
	}()
	if err := s.wait(ctx, wait); err != nil {
		a.leave(session, s)
		return nil, err
	}
	return s.result()
}

func (a *trackedAttempt) hasReturned() bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return a.returned
}

// blockedBy returns the request without which the attempt has gone on, if the client hasn't read it yet, or nil.
func (a *trackedAttempt) blockedBy(session mcp.Session) *sending {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if s := a.blocked[session]; s != nil && !s.isOver() {
		return s
	}
	return nil
}

// flush waits until the client has read what it was told and asked before.
func (a *trackedAttempt) flush(ctx context.Context, session mcp.Session) error {
	if s := a.blockedBy(session); s != nil {
		if err := s.wait(ctx, maxRead); err != nil {
			return err
		}
	}
	return a.call.outboxes.flush(ctx, session)
}

// leave notes that the attempt goes on without an answer.
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
	done chan struct{} // closed when it is over, and the following are set

	res      mcp.Result
	err      error
	returned bool // rather than panicked, or called runtime.Goexit
	panicked any
}

func newSending() *sending { return &sending{done: make(chan struct{})} }

// isOver reports whether the message has been sent, or can't be.
func (s *sending) isOver() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// isOverWithin is isOver after at most some time.
func (s *sending) isOverWithin(atMost time.Duration) bool {
	if atMost <= 0 || s.isOver() {
		return s.isOver()
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-s.done:
		return true
	case <-timer.C:
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

// run does what sends the message, and catches how that ends.
func (s *sending) run(f func() (mcp.Result, error)) {
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
