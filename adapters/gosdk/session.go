package gosdk

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A Session is an MCP client's session with another server that comes back when it is lost. It is a
// [resilience.Connector] that notices the end of the SDK's session by itself, and by the calls that
// are made through [Session.CallTool] and [Use]. Create one with [NewSession]; a nil or zero Session
// can't be used. All methods are safe for concurrent use.
//
// # When a loss is noticed
//
// The end of the server's process is noticed at once, unless another process has inherited its output: then it looks
// like one that hangs. If the process only closes its output, that is noticed by a call in flight, or when the SDK has
// ended the process: only then, if middleware of the client sends one request after the other, or returns before the SDK
// does. One that hangs isn't noticed, unless the client's mcp.ClientOptions have a KeepAlive, which the SDK knows only for
// protocols before 2026-07-28, and not even then while a call is in flight, or the SDK writes what is more than its pipe
// holds. Whoever learns it otherwise calls ReportLost.
//
// Over streamable HTTP, a dead server looks like one that has nothing to say. The next call notices
// it, and so does the SDK's standalone stream, which only protocols before 2026-07-28 have. The
// stream tries to reconnect for up to half a minute. With a MaxRetries of -1 it gives up at once, but
// then no stream is ever resumed.
//
// The next session is dialed while the lost one is being closed. The SDK ends the lost session's
// calls in flight, or lets them finish: a server that accepts no new requests because it restarts may
// still reply to them. One in whose call the client's login or http.RoundTripper has panicked never ends in the SDK,
// unless the server has forgotten it: after 16 of these, no other one is dialed.
//
// The SDK gives up a session if HTTP refuses a single request without an error of MCP, as a proxy does that finds it
// too long, or if an answer can't be read. The call at fault isn't counted then, but others are in vain; and if an answer
// in JSON breaks off, all of them are counted: use [Transport]. It does so, too, if a message over stdio is longer than
// 16 MiB, or isn't JSON, which can't be told from the end of the server's process.
//
// If an error of MCP with a status of HTTP refuses a call, as of a session that the server has forgotten, the session
// pings the server with what the dial had in its context, and is lost if the ping is refused likewise. If the next
// session's ping is, too, or a ping ends the session, such refusals end none for ten minutes, but for status 404, by which
// MCP ends a session; it isn't counted then. A call that has no time for that leaves it to the session to go on asking. A
// server that answers by status 500 or more is in trouble, and its session is kept.
//
// # With a guard
//
// Put the guard around the session, so that a retry uses the session that is up by then:
//
//	res, err := resilience.Do(ctx, guard, "search", func(ctx context.Context) (*mcp.CallToolResult, error) {
//		return session.CallTool(ctx, params)
//	})
//
// A call that wasn't made because the session was known to be down, over streamable HTTP also if only the SDK knew that, or
// because the server couldn't be dialed, is retried for any tool: one that has had an effect by then, as by another
// session, must mark the error with [resilience.MarkPermanent]. Any other call may have been in flight, and is retried if
// the tool's Effect allows it: so may one that has reached the server before, see [ClientMiddleware]. Retries wait for the
// next dial. If an outage may last longer than that, call Wait before CallTool.
//
// [ClientMiddleware] within the session's client works too, but its retries use the session of the
// first attempt.
type Session struct {
	*resilience.Connector[*mcp.ClientSession]

	ctx    context.Context // of all calls; ends when the Session is closed
	cancel context.CancelFunc

	// contexts holds the context of each session of the SDK, until that session is closed. It
	// maps a *mcp.ClientSession to a *sessionContext.
	contexts sync.Map

	closed atomic.Bool // Close was called
	uses   uses
	pings  pings
}

const (
	// endTimeout is how long a call that failed without a clear reason waits for the end of its session, which the SDK
	// reports a moment after the call, or for a reply to a ping; and how long Close waits for calls that it has ended.
	endTimeout = time.Second

	// pingTimeout is how long a closed connection may take to refuse a ping.
	pingTimeout = 200 * time.Millisecond

	// closeTimeout is the timeout of closing a session. When it has passed, the session's context ends, and after as
	// long again Close returns. The SDK waits for calls, and a call may hang that writes to a process which doesn't read.
	closeTimeout = time.Minute
)

var (
	errNoSession = errors.New("gosdk: the dial returned neither a session nor an error")
	errNotClosed = errors.New("gosdk: the session can't be closed")
	errByOwner   = errors.New("gosdk: the session is closed by its owner")
)

// NewSession returns a session and starts its first dial. dial calls mcp.Client.Connect with a new
// transport each time, and does whatever else a new session needs. If it fails, it closes what it has
// opened. A dial that was abandoned may still be running when the next one starts.
//
// Unlike that of a Connector, the context that dial receives doesn't end when dial returns a session,
// but when that session ends. Pass it to exec.CommandContext: then DialTimeout ends a process that is
// silent at first. Pass it to Connect, too, which tells the session whether it is one over streamable HTTP.
//
// NewSession panics if dial is nil, if cfg.Watch isn't nil, because a Session watches by itself, or if
// another field of cfg is invalid. Close the session when it is no longer needed.
func NewSession(
	dial func(context.Context) (*mcp.ClientSession, error), cfg resilience.ConnectorConfig[*mcp.ClientSession],
) *Session {
	switch {
	case dial == nil:
		panic("resilience: gosdk: NewSession: nil dial")
	case cfg.Watch != nil:
		panic("resilience: gosdk: NewSession: Watch must be nil: a Session watches by itself")
	}

	s := &Session{pings: pings{pending: make(chan struct{}, maxPings)}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	closeSession := cfg.Close
	if closeSession == nil {
		closeSession = (*mcp.ClientSession).Close
	}

	cfg.Watch = s.watch
	cfg.Close = func(cs *mcp.ClientSession) error { return s.close(cs, closeSession) }
	s.Connector = resilience.NewConnector(func(ctx context.Context) (*mcp.ClientSession, error) {
		return s.dial(ctx, dial)
	}, cfg)
	return s
}

// dial calls the user's dial with a context that ends with ctx until dial returns, and with the
// session from then on.
func (s *Session) dial(
	ctx context.Context, dial func(context.Context) (*mcp.ClientSession, error),
) (*mcp.ClientSession, error) {
	sessionCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) }) // this also covers a dial that panics
	var sent reach
	cs, err := dial(sent.watch(sessionCtx))
	detach()

	if err == nil && cs == nil {
		err = errNoSession
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	s.contexts.Store(cs, &sessionContext{
		Context: sessionCtx, cancel: cancel, id: cs.ID(), streamable: sent.isStreamable(),
	})
	s.tryPing(ctx, cs)
	return cs, nil
}

// watch waits until cs has ended, and ends its context.
func (s *Session) watch(cs *mcp.ClientSession) error {
	sessionCtx, open := s.contextOf(cs)
	err := cs.Wait()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	if open {
		sessionCtx.endsBy(err)
		sessionCtx.cancel(nil)
	}
	return err
}

// close closes cs and ends its context, at the latest after closeTimeout. Calls that Close has ended return first.
func (s *Session) close(cs *mcp.ClientSession, closeSession func(*mcp.ClientSession) error) error {
	if s.ctx.Err() != nil {
		s.uses.wait()
	}
	if sessionCtx, open := s.contextOf(cs); open {
		s.contexts.Delete(cs)
		defer time.AfterFunc(closeTimeout, func() { sessionCtx.cancel(nil) }).Stop()
		defer sessionCtx.cancel(nil)
	}
	return closeSession(cs)
}

// contextOf returns the context of cs, unless cs has been closed.
func (s *Session) contextOf(cs *mcp.ClientSession) (sessionCtx *sessionContext, open bool) {
	value, open := s.contexts.Load(cs)
	if !open {
		return nil, false
	}
	return value.(*sessionContext), true
}

// Get returns the SDK's session that is up, as [resilience.Connector.Get] does.
func (s *Session) Get(ctx context.Context) (*mcp.ClientSession, error) {
	return valueOf(s.Connector.Get(ctx))
}

// Wait returns the SDK's session as soon as one is up, as [resilience.Connector.Wait] does.
func (s *Session) Wait(ctx context.Context) (*mcp.ClientSession, error) {
	return valueOf(s.Connector.Wait(ctx))
}

// CallTool calls a tool of the other server. Each call sends a copy of params, which may be nil. It
// returns the errors that [Use] describes. A result with isError isn't an error.
func (s *Session) CallTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	return Use(ctx, s, func(ctx context.Context, cs *mcp.ClientSession) (*mcp.CallToolResult, error) {
		var clone mcp.CallToolParams // the SDK writes into it what is specific to this session
		if params != nil {
			clone = *params
			clone.Meta = maps.Clone(params.Meta)
		}
		return cs.CallTool(ctx, &clone)
	})
}

// Use calls f with the session that is up. If none is, Use doesn't wait and doesn't call f, and it
// returns the error of [resilience.Connector.Get]. The context of f ends with ctx, and when the
// Session is closed. Use panics if f is nil.
//
// If the error of f means that the session is lost, Use reports the loss and returns CONNECTION_LOST
// around that error, with the time until the next dial as its RetryAfter, if that is known. If a
// connection broke under a call, Use returns CONNECTION_LOST even if the session is still up.
//
// If ctx has ended by the time that f returns, Use returns at once, and the error of f rather than CONNECTION_LOST. A loss
// that it means is reported all the same.
//
// f may use other sessions, too. The loss of one of them, as its Use or CallTool returns it with the context of f, or with
// one derived from that, is none of this one.
//
// Protocol errors are marked as by [ClientMiddleware], if they have the words of the SDK's around them, and so is what
// the client's own handler returns instead of an answer to a question of the server's. Any other error is returned as it
// is, including the error of a guard within the client, and a *jsonrpc.Error that f has taken out of the SDK's.
func Use[T any](ctx context.Context, s *Session, f func(context.Context, *mcp.ClientSession) (T, error)) (T, error) {
	around, _ := ctx.Value(useKey{}).(*use)
	cs, err := s.Get(ctx)
	if err != nil {
		var none T
		around.note(s, err, true, true)
		return none, err
	}

	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	u := &use{session: s, cs: cs, around: around}
	u.dialed, _ = s.contextOf(cs)
	if s.ctx.Err() != nil {
		u.dialed.endsBy(errByOwner) // it has come up since
	}
	v, err := func() (T, error) {
		defer s.uses.begin()()
		return f(context.WithValue(u.sent.watch(callCtx), useKey{}, u), cs)
	}()
	if err == nil {
		return v, nil
	}
	lost, failed := s.callFailed(ctx, u, err)
	made := isPointer(failed) && failed != err // others may not be comparable
	around.note(s, failed, lost || u.unsure, made)
	return v, failed
}

// Probe pings the server, for the Probe of a [resilience.BreakerConfig]: a breaker closes as soon as the other
// server answers. A server that answers that it knows no ping works, too: since protocol 2026-07-28 none does.
// Without a connection Probe fails at once. It says nothing if pings are what the server refuses, or something before it,
// also by a new session.
func (s *Session) Probe(ctx context.Context) error {
	cs, err := s.Get(ctx)
	if err != nil {
		return resilience.MarkBackend(err) // otherwise it wouldn't be counted
	}

	if s.pings.areMute() && s.pings.fatal.Load() {
		return resilience.MarkNeutral(errFatalPing)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() // Close ends it, too
	err = ping(ctx, cs)
	dialed, _ := s.contextOf(cs)
	if mayRefuseAll(err) {
		dialed.refusesAllBy(err)
	} else if refusesPings(err) {
		dialed.endsBy(err)
	}
	switch {
	case isAnswered(err):
		return nil
	case mayRefuseAll(err) && s.pings.areMute():
		return resilience.MarkNeutral(err)
	case refusesPings(err):
		s.pings.refused.Store(true) // as it may refuse all that comes
		s.ReportLost(cs, err)
	case endsSession(err, dialed.sessionID()):
		s.ReportLost(cs, err) // as the SDK doesn't always notice
	}
	return resilience.MarkBackend(err)
}

// Close closes the session and ends all calls in flight, which return CONNECTION_LOST. Alone, that says nothing of the
// server, and a guard doesn't count it. Close waits for the functions of these calls to return, but for a second at most,
// and returns the error of closing. For a server over stdio that may take as long as the process needs to end, see
// mcp.CommandTransport; while a handler of the client's asks the user something, which the SDK waits for before protocol
// 2026-07-28, until it returns; and over HTTP ten seconds for the server's answers, and as long as a login that hangs.
// After two minutes Close returns an error, and closing goes on. A second Close does nothing.
func (s *Session) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if cs, err := s.Get(context.Background()); err == nil { // no other one was up
		dialed, _ := s.contextOf(cs)
		dialed.endsBy(errByOwner)
	}
	s.cancel() // otherwise the SDK would wait for the calls

	closed := make(chan error, 1)
	go func() {
		err := resilience.ErrGoexit // unless closing returns
		defer func() { closed <- err }()
		err = s.Connector.Close()
		s.uses.wait() // if no session was up
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(2 * closeTimeout):
		return errNotClosed
	}
}

// callFailed returns the error of Use for a call that has failed with err, and whether err means that the session is lost,
// which it reports. Once ctx has ended, it doesn't wait to learn that.
func (s *Session) callFailed(ctx context.Context, u *use, err error) (lost bool, _ error) {
	ended := ctx.Err() != nil
	isClosed := func() bool { return !ended && s.ctx.Err() != nil }
	p, ok := partsOf(err, u.known())
	if !ok {
		return false, err
	}
	p.noteEarlier(ctx, &u.sent)
	requests := slices.DeleteFunc(slices.Clone(p.said), isQuestion)
	lost, reason := s.lossIn(ctx, u, requests)
	switch {
	case isClosed() && (lost || errors.Is(err, context.Canceled)):
		return true, closedForGood(u, err)
	case p.authored: // also by a guard within the client
		if lost {
			s.ReportLost(u.cs, err)
		}
		return lost, err
	case len(p.said) == 0:
		return false, err
	}

	result := p.errorOf(err, "", &u.sent) // a status that says that the session has ended isn't believed without a ping
	if !lost && slices.ContainsFunc(requests, mayFollowSessionEnd) && s.endsSoon(ctx, u.cs) {
		if isClosed() {
			return true, closedForGood(u, err)
		}
		lost, reason = true, reasonClosed
	}
	if reason != "" {
		result = connectionLost(reason, err)
	}

	var down error
	if lost {
		s.ReportLost(u.cs, err)
		_, down = s.Get(ctx)
		if !ended && u.isUnmade(p, &u.sent) {
			return true, p.unmade(err, down)
		}
	}
	return lost, withNextDial(result, err, down, ended)
}
