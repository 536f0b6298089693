package gosdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// askTime is for how long a ping may take, however short a time its calls have: to end one within its answer may end the
// session, and one by the next session must see what the other has seen, however slow refusals are.
const askTime = 10 * time.Second

// muteTime is for how long a server's refusal of a ping says nothing, after it has refused one by a new session, too.
const muteTime = 10 * time.Minute

// pings is what a Session knows of how its server takes pings. One that refuses a call may have forgotten the session,
// or its token may have expired; then it refuses a ping likewise, and another session is needed. But it may let no ping
// through at all, or none without the token that a call has in its context. A ping by the next session tells.
type pings struct {
	refused atomic.Bool               // the last session was given up since one was
	mute    atomic.Pointer[time.Time] // until when the refusal of one says nothing; nil is the past
	fatal   atomic.Bool               // whether one that said nothing has ended its session
}

// errFatalPing is the error of a Probe that would end the session.
var errFatalPing = errors.New("gosdk: something before the server refuses pings, and each one ends a session")

// areMute reports whether the refusal of a ping says nothing.
func (p *pings) areMute() bool {
	until := p.mute.Load()
	return until != nil && time.Now().Before(*until)
}

// silence notes that refusals say nothing for a while, and whether the last one has ended its session.
func (p *pings) silence(fatal bool) {
	until := time.Now().Add(muteTime)
	p.fatal.Store(fatal)
	p.mute.Store(&until)
}

// tryPing pings the server by a new session if the last one was given up because it had refused a ping.
func (s *Session) tryPing(ctx context.Context, cs *mcp.ClientSession) {
	if !s.pings.refused.Swap(false) {
		return
	}
	patience := askTime
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	if err := s.ping(ctx, patience, cs); refusesPings(err) {
		s.pings.silence(!mayRefuseAll(err))
	}
}

// endsByPing reports whether the SDK has given up the session since it could not read the answer to a ping, as what HTTP
// refuses without an error of MCP.
func endsByPing(err error) bool {
	var wire *jsonrpc.Error
	if err == nil || errors.As(err, &wire) || errors.Is(err, mcp.ErrSessionMissing) {
		return false
	}
	_, ended := refusal(err)
	return ended || strings.Contains(err.Error(), `sending "ping": `)
}

// isPingRefused reports whether HTTP has refused the ping that has ended the session so, which is no accident.
func isPingRefused(err error) bool {
	if !endsByPing(err) {
		return false
	}
	_, said, found := strings.Cut(err.Error(), `sending "ping": `)
	if !found {
		return strings.HasPrefix(saidBySDK(err), "failed to write: ") // by the transport for SSE
	}
	return said == "" || statusOf(said) != 0 ||
		strings.HasPrefix(said, "unsupported content type ") || strings.HasPrefix(said, "authorization cancelled: ")
}

// A finding is what a ping has told of a session by which a call was refused.
type finding uint8

const (
	nothing    finding = iota // it tells nothing, and the call's own error decides
	isSpared                  // the server has answered, and therefore knows the session, or is slow, or busy
	isEnded                   // the session has ended, by the ping or meanwhile, which tells nothing of the call
	refusesAll                // the server refuses all that comes by the session
)

// examine pings the server after a call that it has refused with this error.
func (s *Session) examine(ctx context.Context, u *use, refused error) finding {
	if !mayRefuseAll(refused) || s.pings.areMute() {
		return nothing
	}
	return found(s.awaitPing(ctx, u, refused), u.cs, refused)
}

// found returns what this reply to a ping, which may be nil, tells.
func found(reply error, cs *mcp.ClientSession, refused error) finding {
	switch {
	case isAnswered(reply):
		return isSpared
	case endsByPing(reply), errors.Is(reply, mcp.ErrConnectionClosed):
		return isEnded
	case endsSession(reply, cs.ID()): // it knows the session no more
		return refusesAll
	case !mayRefuseAll(reply):
		return isSpared
	case isSameRefusal(reply, refused):
		return refusesAll
	}
	return nothing
}

// A pendingPing is a ping of a session that has failed a call. All calls that fail meanwhile wait for its reply, and those
// that come too late for a session that was given up find it there.
type pendingPing struct {
	done  chan struct{} // closed when there is a reply
	reply error
}

// awaitPing pings the server after a call that has failed with this error. It returns the reply, or ctx.Err() if the call
// can't wait for it: then the ping goes on.
func (s *Session) awaitPing(ctx context.Context, u *use, failed error) error {
	if u.dialed == nil {
		return mcp.ErrConnectionClosed
	}

	p := &pendingPing{done: make(chan struct{})}
	if other := u.dialed.begin(p); other != p {
		p = other
	} else {
		go func() {
			p.reply = s.ping(s.ctx, askTime, u.cs)
			if !s.learn(p.reply, u.cs, failed) {
				u.dialed.pending.Store(nil)
			}
			close(p.done)
		}()
	}

	ctx, cancel := context.WithTimeout(ctx, waitTime(ctx))
	defer cancel()
	select {
	case <-p.done:
		return p.reply
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin makes p the pending ping, and returns that: p, or an earlier one.
func (c *sessionContext) begin(p *pendingPing) *pendingPing {
	for {
		if other := c.pending.Load(); other != nil {
			return other
		}
		if c.pending.CompareAndSwap(nil, p) {
			return p
		}
	}
}

// learn notes what a reply tells of pings, and reports whether the session is lost, also if no call waits for that.
func (s *Session) learn(reply error, cs *mcp.ClientSession, failed error) (lost bool) {
	f := found(reply, cs, failed)
	lost = f == isEnded || f == refusesAll
	switch {
	case !mayRefuseAll(failed): // what has ended the session may be an earlier ping
	case isPingRefused(reply):
		s.pings.silence(true) // no further one ends a session
	case lost && refusesPings(reply):
		s.pings.refused.Store(true)
	}

	lost = lost || f == nothing && endsSession(failed, cs.ID())
	if lost {
		s.ReportLost(cs, failed)
	}
	return lost
}

// refusesPings reports whether the server, or something before it, has refused a ping with this error, which may be nil, or
// has answered it by what the SDK can't read. The next session tells whether it does so each time.
func refusesPings(err error) bool {
	return mayRefuseAll(err) || endsByPing(err) || errors.Is(err, mcp.ErrSessionMissing)
}

// ping pings the server with what the dial of cs had in its context: what a call has there, such as the token of a
// user, may be what the server refuses. It waits no longer than patience.
func (s *Session) ping(ctx context.Context, patience time.Duration, cs *mcp.ClientSession) error {
	dialed, open := s.contextOf(cs)
	if !open {
		return mcp.ErrConnectionClosed
	}
	pinging, done := dialed.until(ctx)
	defer done()
	err := pingWithin(pinging, patience, cs)
	if dialed.Err() != nil && (err == nil || !isCallError(err)) {
		return fmt.Errorf("%w: client is closing: %w", mcp.ErrConnectionClosed, context.Cause(dialed)) // meanwhile
	}
	return err
}

// hasClosed reports whether the connection is closed, as hasClosed with such a ping does.
func (s *Session) hasClosed(ctx context.Context, cs *mcp.ClientSession) bool {
	dialed, open := s.contextOf(cs)
	if !open {
		return true
	}
	pinging, done := dialed.until(ctx)
	defer done()
	return hasClosed(pinging, waitTime(ctx), cs) || dialed.Err() != nil
}

// waitTime is how long a call waits to learn why it has failed: endTimeout, or a quarter of its time.
func waitTime(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(min(endTimeout, time.Until(deadline)/4), 1)
	}
	return endTimeout
}

// ping pings the server of cs, which reaches no tool. Since protocol 2026-07-28 no server knows the method, but each
// says so, if the request has the _meta that all requests have, which the SDK doesn't add to a ping.
func ping(ctx context.Context, cs *mcp.ClientSession) error {
	params := &mcp.PingParams{}
	if r := cs.InitializeResult(); r != nil && r.ProtocolVersion >= protocolStateless {
		params.Meta = mcp.Meta{mcp.MetaKeyProtocolVersion: r.ProtocolVersion, mcp.MetaKeyClientCapabilities: struct{}{}}
	}

	err := cs.Ping(ctx, params)
	if err != nil && isAnswered(err) {
		resilience.ReportBackend(ctx, nil) // a Transport has seen status 404
	}
	return err
}

// isAnswered reports whether the server has answered a ping, if only that it knows none.
func isAnswered(err error) bool {
	var answer *jsonrpc.Error
	return err == nil || errors.As(err, &answer) && answer.Code == jsonrpc.CodeMethodNotFound
}

// pingWithin pings the server of cs, after a call has failed with an error that doesn't tell whether the connection
// is closed.
func pingWithin(ctx context.Context, timeout time.Duration, cs *mcp.ClientSession) error {
	_, err := resilience.WithTimeout(ctx, "ping", timeout, func(ctx context.Context) (any, error) {
		return nil, ping(ctx, cs)
	})
	return err
}

// hasClosed pings the server of cs, and reports whether the connection is closed. While the SDK waits for the end of a
// process that has closed its output, it doesn't even give up a ping whose context has ended, as it otherwise does at once.
func hasClosed(ctx context.Context, timeout time.Duration, cs *mcp.ClientSession) bool {
	pinging, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replied := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			_ = recover() // of the client's middleware: it says nothing
			replied <- err
		}()
		err = ping(pinging, cs)
	}()

	select {
	case err := <-replied:
		return isClosed(err, cs)
	case <-pinging.Done():
	}
	select {
	case err := <-replied:
		return isClosed(err, cs)
	case <-time.After(timeout):
		return ctx.Err() == nil
	}
}

// isClosed reports whether the error of a ping, which may be nil, says that the connection of cs is closed. The SDK
// refuses a ping at once then.
func isClosed(err error, cs *mcp.ClientSession) bool {
	return errors.Is(err, mcp.ErrConnectionClosed) || err != nil && endsSession(err, cs.ID())
}
