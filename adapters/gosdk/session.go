package gosdk

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A Session is an MCP client's session with another server that comes back when it is lost. It is a
// [resilience.Connector] that knows when the SDK's session is broken. Create one with [NewSession]; a nil or zero
// Session can't be used. All methods are safe for concurrent use.
//
// The end of a server's process is noticed at once. Whatever else may break a session shows when it is used: after
// every use ([Session.CallTool], [Use]) that ends without an answer of MCP, such as by a timeout, an HTTP status or
// garbled JSON, the session pings the server in the background. The answer, or the answer that the server knows no
// ping, keeps the session. Otherwise another one is dialed, with the backoff of the config. A use that is canceled says
// nothing about the session.
//
// Put a guard around the session, so that a retry uses the session that is up by then. A call that wasn't made because
// the session was down is retried for any tool: a tool that has had an effect by then must mark the error with
// [resilience.MarkPermanent]. Any other call may have been in flight, and is retried if the tool's Effect allows it.
// Over HTTP, use a [Transport], so that the refusal of one request ends no other call.
type Session struct {
	*resilience.Connector[*mcp.ClientSession]

	ctx    context.Context // of all uses; ends when the Session is closed
	cancel context.CancelFunc
	ends   sync.Map // *mcp.ClientSession to the context.CancelCauseFunc of its dial's context, until it is closed

	mu   sync.Mutex     // held to begin a use, and to close: no use begins afterwards
	uses sync.WaitGroup // the running functions
}

// protocolStateless is the protocol since which there are neither sessions nor pings, and a result has a type.
const protocolStateless = "2026-07-28"

// closeTimeout is how long the SDK may take to close a session before the context of the session's dial ends, and with
// it the process. The SDK waits for calls in flight, and one that writes to a process that doesn't read hangs.
const closeTimeout = time.Minute

// returnTimeout is how long Close waits for functions that it has canceled. Over HTTP, the SDK holds up the calls in
// flight once it closes the session.
const returnTimeout = time.Second

var errNoSession = errors.New("gosdk: the dial returned neither a session nor an error")

// NewSession returns a session and starts its first dial. dial calls mcp.Client.Connect with a new transport each time,
// and does whatever else a new session needs. If it fails, it closes what it has opened. A dial that was abandoned may
// still be running when the next one starts. The login that a server refuses, and the time that a busy one asks to
// wait, are part of the error of [Session.Get].
//
// Unlike that of a Connector, the context that dial receives doesn't end when dial returns a session, but when that
// session ends. Pass it to exec.CommandContext: it ends a process that is silent at first, or doesn't end by itself.
//
// A nil cfg.Check is a ping, and cfg.CheckTimeout its timeout, 10s by default. Choose more for a server that answers
// nothing while it runs a tool. NewSession panics if dial is nil, if cfg.Watch isn't nil, because a Session watches by
// itself, or if another field of cfg is invalid. Close the session when it is no longer needed.
func NewSession(
	dial func(context.Context) (*mcp.ClientSession, error), cfg resilience.ConnectorConfig[*mcp.ClientSession],
) *Session {
	switch {
	case dial == nil:
		panic("resilience: gosdk: NewSession: nil dial")
	case cfg.Watch != nil:
		panic("resilience: gosdk: NewSession: Watch must be nil: a Session watches by itself")
	}

	s := &Session{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	closeSession := cfg.Close
	if closeSession == nil {
		closeSession = (*mcp.ClientSession).Close
	}
	if cfg.Check == nil {
		cfg.Check = ping
	}
	cfg.Watch = func(cs *mcp.ClientSession) error { return cmp.Or(cs.Wait(), io.EOF) }
	cfg.Close = func(cs *mcp.ClientSession) error { return s.close(cs, closeSession) }
	s.Connector = resilience.NewConnector(func(ctx context.Context) (*mcp.ClientSession, error) {
		return s.dial(ctx, dial)
	}, cfg)
	return s
}

// dial calls the user's dial with a context that ends with ctx until dial returns, and with the session from then on.
func (s *Session) dial(
	ctx context.Context, dial func(context.Context) (*mcp.ClientSession, error),
) (*mcp.ClientSession, error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) }) // this also covers a dial that panics
	cs, err := dial(life)
	detach()

	if err == nil && cs == nil {
		err = errNoSession
	}
	if err != nil {
		end(nil)
		return nil, dialFailure(err)
	}
	s.ends.Store(cs, end)
	return cs, nil
}

// close closes cs, which has ended or is to end. The uses that Close has canceled return first.
func (s *Session) close(cs *mcp.ClientSession, closeSession func(*mcp.ClientSession) error) error {
	if s.ctx.Err() != nil {
		returned := make(chan struct{})
		go func() { s.uses.Wait(); close(returned) }()
		select {
		case <-returned:
		case <-time.After(returnTimeout):
		}
	}

	end := func() {
		if end, found := s.ends.LoadAndDelete(cs); found {
			end.(context.CancelCauseFunc)(nil)
		}
	}
	defer end()
	defer time.AfterFunc(closeTimeout, end).Stop()
	return closeSession(cs)
}

// Get returns the SDK's session that is up, as [resilience.Connector.Get] does. To report that it may be broken, use
// the Conn that Session.Connector.Get returns.
func (s *Session) Get(ctx context.Context) (*mcp.ClientSession, error) {
	return valueOf(s.Connector.Get(ctx))
}

// Wait returns the SDK's session as soon as one is up, as [resilience.Connector.Wait] does.
func (s *Session) Wait(ctx context.Context) (*mcp.ClientSession, error) {
	return valueOf(s.Connector.Wait(ctx))
}

func valueOf(conn *resilience.Conn[*mcp.ClientSession], err error) (*mcp.ClientSession, error) {
	if err != nil {
		return nil, err
	}
	return conn.Value(), nil
}

// ReportLost reports that cs is lost, and why; err may be nil. It does nothing unless cs is the session that is up.
func (s *Session) ReportLost(cs *mcp.ClientSession, err error) {
	if conn, down := s.Connector.Get(context.Background()); down == nil && conn.Value() == cs {
		conn.Lost(err)
	}
}

// CallTool calls a tool of the other server. Each call sends a copy of params, which may be nil. It returns the errors
// that [Use] describes. A result with isError isn't an error.
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

// Use calls f with the session that is up. If none is, Use doesn't wait and doesn't call f, and it returns the error of
// [resilience.Connector.Get]. The context of f ends with ctx, and when the Session is closed.
//
// If f returns an error of the SDK by which the session is gone, Use returns CONNECTION_LOST around that error, with
// the time until the next dial as its RetryAfter, if that is known. An error that stands for a refused or a
// broken request is marked as by [ClientMiddleware]; any other is returned as it is. f may use other sessions, by their
// own Use.
func Use[T any](ctx context.Context, s *Session, f func(context.Context, *mcp.ClientSession) (T, error)) (T, error) {
	conn, err := s.begin(ctx)
	if err != nil {
		var none T
		return none, err
	}
	defer s.uses.Done()

	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	defer context.AfterFunc(ctx, func() { // f may hang, as the SDK does while it writes to a process that doesn't read
		if ctx.Err() == context.DeadlineExceeded {
			conn.Suspect(ctx.Err())
		}
	})()

	var sent trace
	v, err := f(sent.watch(callCtx), conn.Value())
	if err != nil {
		err = s.failed(ctx, conn, err, &sent)
	}
	return v, err
}

// begin admits a use if a session is up.
func (s *Session) begin(ctx context.Context) (*resilience.Conn[*mcp.ClientSession], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := s.Connector.Get(ctx)
	if err == nil && s.ctx.Err() != nil {
		err = closedForGood(s.ctx.Err())
	}
	if err == nil {
		s.uses.Add(1)
	}
	return conn, err
}

// failed returns the error of Use, and reports a session that is lost, or may be. An error that a guard or another
// session has already judged may be about something else.
func (s *Session) failed(
	ctx context.Context, conn *resilience.Conn[*mcp.ClientSession], err error, sent *trace,
) error {
	var own *resilience.Error
	isAnswer := mistakeIn(err) != nil && !isRejected(err)
	switch {
	case s.ctx.Err() != nil:
		return closedForGood(err)
	case isGone(err) && !errors.As(err, &own):
		conn.Lost(err)
		lost := connectionLost(err)
		if _, down := s.Get(ctx); errors.As(down, &own) {
			lost.RetryAfter = own.RetryAfter
		}
		return lost
	case !isAnswer && !errors.Is(err, context.Canceled):
		conn.Suspect(err)
	}
	return failureOf(err, sent)
}

// closedForGood returns the error of a use that has failed with err when the Session was closed.
func closedForGood(err error) error {
	e := resilience.ConnectionLostError("closed for good")
	e.Retryable, e.Err = false, err
	e.Suggestion = "This connection will not come back: use another tool or tell the user. " +
		"If this tool changes anything, check whether this call took effect."
	return resilience.MarkNeutral(e)
}

// Probe pings the server, for the Probe of a [resilience.BreakerConfig]: a breaker closes as soon as the other server
// answers. Without a session that is up, Probe fails at once. A session that doesn't answer is checked, and replaced.
func (s *Session) Probe(ctx context.Context) error {
	conn, err := s.Connector.Get(ctx)
	if err == nil {
		if err = ping(ctx, conn.Value()); err != nil {
			conn.Suspect(err)
		}
	}
	return resilience.MarkBackend(err)
}

// ping asks the server whether the session works. Since protocol 2026-07-28 no server knows pings, but each says so, if
// the request has the _meta of all requests, which the SDK doesn't add to a ping.
func ping(ctx context.Context, cs *mcp.ClientSession) error {
	meta := mcp.Meta{}
	if r := cs.InitializeResult(); r != nil && r.ProtocolVersion >= protocolStateless {
		meta[mcp.MetaKeyProtocolVersion], meta[mcp.MetaKeyClientCapabilities] = r.ProtocolVersion, struct{}{}
	}

	err := cs.Ping(ctx, &mcp.PingParams{Meta: meta})
	var answer *jsonrpc.Error
	if errors.As(err, &answer) && answer.Code == jsonrpc.CodeMethodNotFound {
		return nil
	}
	return err
}

// Close closes the session and ends all uses in flight. These return CONNECTION_LOST, which a guard doesn't count.
// Close returns the error of closing. For a server over stdio it takes as long as the process needs to end, see
// mcp.CommandTransport. A second Close does nothing.
func (s *Session) Close() error {
	s.mu.Lock()
	s.cancel() // otherwise the SDK would wait for the calls
	s.mu.Unlock()
	return s.Connector.Close()
}
