package gosdk

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A Session is an MCP client's session with another server that comes back when it is
// lost: a [resilience.Connector] that notices by itself when the session has ended, and by
// the calls that are made through [Session.CallTool] and [Use]. Make one with
// [NewSession]; all methods are safe for concurrent use, but not on a nil or zero Session.
//
// # What is noticed, and when
//
// A process that ends is noticed at once; one that only closes its output, by the call in
// flight or when the SDK has ended it. Over streamable HTTP a dead server looks like one
// with nothing to say. It is noticed by the next call, or by the SDK's standalone stream
// (protocols before 2026-07-28), which tries on for up to half a minute; with MaxRetries
// -1 it gives up at once, but then no stream is ever resumed.
//
// A lost session is closed while the next is dialled. Calls of it that are in flight end as
// the SDK ends them: a server that takes no new requests, because it restarts, may yet
// answer.
//
// # With a guard
//
// Put the guard outside, so that a retry goes to the session that is up by then:
//
//	res, err := resilience.Do(ctx, guard, "search", func(ctx context.Context) (*mcp.CallToolResult, error) {
//		return session.CallTool(ctx, params)
//	})
//
// A call that was not made, because the session was down, is retried for any tool, and one
// that was in flight as the tool's Effect says. Retries wait for the next dial; where an
// outage may outlast them, call Wait before CallTool. [ClientMiddleware] within the
// session's client works too, but its retries go to the session of the first attempt.
type Session struct {
	*resilience.Connector[*mcp.ClientSession]
	lives sync.Map // *mcp.ClientSession → life, until it is closed

	ctx context.Context // of all calls
	end context.CancelFunc
}

// A life is the context of one session.
type life struct {
	context.Context
	end context.CancelCauseFunc
}

const (
	// patience is how long a call that failed without saying why waits for the end of its
	// session, which the SDK reports a moment later.
	patience = time.Second

	// closeTimeout is when the context of a session ends that can't be closed: the SDK waits
	// for calls, and one may hang that writes to a process which doesn't read.
	closeTimeout = time.Minute
)

var (
	errNoSession = errors.New("gosdk: the dial returned neither a session nor an error")
	errUnclosed  = errors.New("gosdk: the session can't be closed")
)

// NewSession returns a session that is being dialled already: dial calls mcp.Client.Connect,
// with a new transport each time, and does whatever else a new session needs, which it
// closes if that fails. A dial that was given up on may still run when the next one begins.
//
// Unlike a Connector's, the context that dial gets lives on if dial succeeds, until the
// session has ended. Give it to exec.CommandContext: then a process that is silent at first
// is ended at DialTimeout. NewSession panics if dial is nil, cfg.Watch isn't (a Session
// watches by itself), or a field of cfg is not allowed. Close the session when it is no
// longer needed.
func NewSession(dial func(context.Context) (*mcp.ClientSession, error), cfg resilience.ConnectorConfig[*mcp.ClientSession]) *Session {
	switch {
	case dial == nil:
		panic("resilience: gosdk: NewSession: nil dial")
	case cfg.Watch != nil:
		panic("resilience: gosdk: NewSession: Watch must be nil: a Session watches by itself")
	}
	s := &Session{}
	s.ctx, s.end = context.WithCancel(context.Background())
	cfg.Watch = s.watch
	closeSession := cfg.Close
	if closeSession == nil {
		closeSession = (*mcp.ClientSession).Close
	}
	cfg.Close = func(cs *mcp.ClientSession) error {
		if l, ok := s.lives.LoadAndDelete(cs); ok {
			end := l.(life).end
			defer time.AfterFunc(closeTimeout, func() { end(errUnclosed) }).Stop()
			defer end(nil)
		}
		return closeSession(cs)
	}
	s.Connector = resilience.NewConnector(func(ctx context.Context) (*mcp.ClientSession, error) {
		return s.dial(ctx, dial)
	}, cfg)
	return s
}

func (s *Session) dial(ctx context.Context, dial func(context.Context) (*mcp.ClientSession, error)) (*mcp.ClientSession, error) {
	detached, end := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) }) // also if dial panics
	cs, err := dial(detached)
	detach()
	if err == nil && cs == nil {
		err = errNoSession
	}
	if err != nil {
		end(err)
		return nil, err
	}
	s.lives.Store(cs, life{detached, end})
	return cs, nil
}

func (s *Session) watch(cs *mcp.ClientSession) error {
	l, alive := s.lives.Load(cs)
	err := cs.Wait()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	if alive {
		l.(life).end(err)
	}
	return err
}

// CallTool calls a tool of the other server. Each call has a copy of params, which may be
// nil; errors are as [Use] says. A result with isError is a result.
func (s *Session) CallTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	return Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
		var own mcp.CallToolParams // the SDK writes into it what goes for this session
		if params != nil {
			own = *params
			own.Meta = maps.Clone(params.Meta)
		}
		return cs.CallTool(ctx, &own)
	})
}

// Use calls f with the session, at once: if it isn't up, f isn't called, and Use returns
// what [resilience.Connector.Get] does. f's context ends with ctx and with Session.Close.
//
// If f's error means that the session is lost, that is reported, and Use returns
// CONNECTION_LOST around it, with the time until the next dial as RetryAfter where known.
// A connection that broke under a call is CONNECTION_LOST too, also where the session
// lives on. Protocol errors are marked as [ClientMiddleware] does; any other error is
// returned as it is, as is that of a guard within the client. Use panics if f is nil.
func Use[T any](ctx context.Context, s *Session, f func(context.Context, *mcp.ClientSession) (T, error)) (T, error) {
	cs, err := s.Get(ctx)
	if err != nil {
		var none T
		return none, err
	}
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	v, err := f(call, cs)
	if err == nil || ctx.Err() != nil {
		return v, err
	}
	return v, s.failed(ctx, cs, err)
}

// Close closes the session and ends all calls in flight, which get CONNECTION_LOST. It
// returns what closing returns, which for a server over stdio may take as long as its
// process needs to end: see mcp.CommandTransport. A second Close does nothing.
func (s *Session) Close() error {
	s.end() // the SDK would wait for the calls
	return s.Connector.Close()
}

// failed returns what the caller gets for err, and reports what it says of the session.
func (s *Session) failed(ctx context.Context, cs *mcp.ClientSession, err error) error {
	said := err // by the SDK
	var guarded *resilience.Error
	for errors.As(said, &guarded) && guarded != nil && guarded.Err != nil {
		said = guarded.Err
	}
	over := sessionOver(said, cs.ID())
	switch {
	case s.ctx.Err() != nil && (over || errors.Is(err, context.Canceled)):
		e := lost("closed for good", err)
		e.Retryable = false
		return resilience.MarkPermanent(e)
	case guarded != nil: // by a guard within the client
		if over {
			s.ReportLost(cs, err)
		}
		return err
	case !ofCall(err):
		return err
	}
	told := clientError(err, cs.ID())
	if !over && unexplained(err) && s.ends(ctx, cs) {
		over, told = true, lost("the server has closed the connection", err)
	}
	e := resilience.AsError("", told)
	if over {
		s.ReportLost(cs, err)
		var down *resilience.Error
		if _, why := s.Get(ctx); errors.As(why, &down) {
			e.RetryAfter = down.RetryAfter
		}
	}
	if e.Code != resilience.CodeConnectionLost {
		return told
	}
	return e
}

// ends waits a moment for the session's end.
func (s *Session) ends(ctx context.Context, cs *mcp.ClientSession) bool {
	l, alive := s.lives.Load(cs)
	if !alive {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-l.(life).Done():
		return true
	case <-ctx.Done():
		return false
	}
}
