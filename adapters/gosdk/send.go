package gosdk

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// sendTime is how long a client may take to read a message, or to answer a ping, before the timeout of the tool that
// waits for it is paused, and how long a tool still waits for it after the end of its attempt.
const sendTime = 100 * time.Millisecond

var errNotReading = errors.New("gosdk: the client doesn't read what it is sent")

// middleware is sending middleware. While a client asks its user, or doesn't read, it pauses the timeout of the call,
// also where the SDK sends the questions of a result to a client of an older protocol. Each progress notification
// restarts the timeout of its call.
func (t *tracker) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	next = neutral(next)
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		a, _ := ctx.Value(trackedAttemptKey{}).(*trackedAttempt)
		send := func() (mcp.Result, error) { return next(ctx, method, req) }
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
				if of != a {
					ctx = of.ctx
				}
				return of.advance(ctx, note.Progress, send)
			}
		}
		if a == nil {
			return send()
		}
		return a.send(ctx, send)
	}
}

// neutral marks errors of what a server sends to its client, such as that the user doesn't answer in time or that the
// client is gone: they say nothing about the backend of the tool, whatever that makes of them.
func neutral(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if _, direct := err.(*jsonrpc.Error); direct {
			return res, err // of a wrapped one that a handler returns, the SDK keeps no data
		}
		return res, resilience.MarkNeutral(err)
	}
}

// send calls f, which sends something to the client and may wait for an answer. ctx belongs to the attempt.
//
// The SDK's writing blocks while the client doesn't read, whatever becomes of the context. So that no client can make
// a tool seem to hang, its timeout is paused as long as it waits, and when its attempt ends, the tool goes on without
// f. It sends nothing more until f has returned, which it does with the connection at the latest.
func (a *trackedAttempt) send(ctx context.Context, f func() (mcp.Result, error)) (mcp.Result, error) {
	if a.isBlocked() {
		return nil, resilience.MarkNeutral(errNotReading)
	}

	s := &sending{done: make(chan struct{})}
	go s.run(f)
	slow := time.NewTimer(sendTime)
	defer slow.Stop()
	select {
	case <-s.done:
		return s.result()
	case <-a.ctx.Done():
	case <-slow.C:
		defer resilience.Pause(ctx)()
		select {
		case <-s.done:
			return s.result()
		case <-a.ctx.Done():
		}
	}

	if !a.isAbandoned() { // the tool has returned, and goes on with its work
		<-s.done
		return s.result()
	}
	slow.Reset(sendTime)
	select {
	case <-s.done:
		return s.result()
	case <-slow.C:
		a.block(s)
		return nil, a.ctx.Err()
	}
}

// block says that the tool has gone on without s.
func (a *trackedAttempt) block(s *sending) {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.blocked = s
}

// isBlocked reports whether the client hasn't read yet what the tool has gone on without.
func (a *trackedAttempt) isBlocked() bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if a.blocked == nil {
		return false
	}
	select {
	case <-a.blocked.done:
		return false
	default:
		return true
	}
}

// A sending is a message to a client that is being sent.
type sending struct {
	done chan struct{} // closed once the following are set

	res      mcp.Result
	err      error
	returned bool // rather than panicked, or called runtime.Goexit
	panicked any
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
