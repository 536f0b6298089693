package gosdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// askTime is for how long a ping may take, however short a time its call has, and one by the next session, which must
// see what the other has seen, however slow refusals are.
const askTime = 10 * time.Second

// maxPings is how many pings of a Session may be under way for calls.
const maxPings = 64

// muteTime is for how long a server's refusal of a ping says nothing, after it has refused one by a new session, too.
const muteTime = 10 * time.Minute

// pings is what a Session knows of how its server takes pings. One that refuses a call may have forgotten the session,
// or its token may have expired; then it refuses a ping likewise, and another session is needed. But it may let no ping
// through at all, or none without the token that a call has in its context. A ping by the next session tells.
type pings struct {
	pending chan struct{}             // holds as many values as are under way, maxPings at most
	refused atomic.Bool               // the last session was given up since one was
	mute    atomic.Pointer[time.Time] // until when the refusal of one says nothing; nil is the past
	fatal   atomic.Bool               // whether one that said nothing has ended its session
}

// errFatalPing is the error of a Probe that would end the session.
var errFatalPing = errors.New("gosdk: something before the server refuses pings, and each one ends a session")

// errUnreadablePing takes the place of an error of the client's middleware that can't be read.
var errUnreadablePing = errors.New("gosdk: the error of a ping can't be read: it wraps itself, or its methods panic")

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

// begin takes a place in pending, and reports whether one was free before the end of ctx.
func (p *pings) begin(ctx context.Context) bool {
	select {
	case p.pending <- struct{}{}:
		return true
	default: // ctx may have ended, but a place may be free
	}
	select {
	case p.pending <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
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

// endsByPing reports whether the SDK has given up the session since it could not read the answer to a ping, as what
// HTTP refuses without an error of MCP.
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
		strings.HasPrefix(said, "unsupported content type ") || strings.HasPrefix(said, loginCanceled)
}

// A finding is what a ping has told of a session by which a call was refused.
type finding uint8

const (
	nothing    finding = iota // it tells nothing, and the call's own error decides
	isSpared                  // the server has answered, and therefore knows the session, or is slow, or busy
	isEnded                   // the session has ended, by the ping or by another call, which tells nothing of this one
	refusesAll                // the server refuses all that comes by the session, or that has ended otherwise
)

func (f finding) isLoss() bool { return f == isEnded || f == refusesAll }

// examine pings the server after a call that it has refused with one of these errors, whose session is lost if the ping
// tells so, and returns which one that is. It goes on if the call can't wait for that: to end a ping within its answer
// would end the session of a plain transport.
func (s *Session) examine(ctx context.Context, u *use, said []error) (finding, error) {
	said = slices.DeleteFunc(slices.Clone(said), func(err error) bool { return !mayRefuseAll(err) })
	if len(said) == 0 || s.pings.areMute() {
		return nothing, nil
	}
	ctx, cancel := context.WithTimeout(ctx, waitTime(ctx))
	defer cancel()
	if !s.pings.begin(ctx) { // they hang
		u.unsure = true
		return isSpared, nil
	}

	type result struct {
		finding
		refused error
	}
	told := make(chan result, 1)
	go func() {
		defer func() { <-s.pings.pending }()
		found := result{finding: isSpared}
		defer func() {
			_ = recover() // of a method of an error that the client's middleware returns
			told <- found
		}()
		reply := s.ping(s.ctx, askTime, u.cs)
		for _, refused := range said {
			found = result{s.find(u, refused, reply), refused}
			if found.isLoss() {
				break
			}
		}
		switch found.finding {
		case isEnded:
			u.dialed.endsBy(reply)
		case refusesAll:
			u.dialed.refusesAllBy(found.refused)
		}
		ends := func(err error) bool { return endsSession(err, u.dialed.sessionID()) }
		if found.isLoss() || found.finding == nothing && slices.ContainsFunc(said, ends) {
			s.ReportLost(u.cs, found.refused)
		}
	}()

	select {
	case found := <-told:
		return found.finding, found.refused
	case <-ctx.Done():
		u.unsure = true
		return isSpared, nil
	}
}

// find returns what the reply to a ping, which is nil or an error, tells, and notes what it tells of pings.
func (s *Session) find(u *use, refused, reply error) finding {
	switch {
	case isAnswered(reply):
		return isSpared
	case isPingRefused(reply): // no further one ends a session
		s.pings.silence(true)
		return isEnded
	case endsByPing(reply):
		s.pings.refused.Store(true)
		return isEnded
	case isClosed(reply, u.dialed.sessionID()): // it knows the session no more, or that has ended meanwhile
		if refusesPings(reply) {
			s.pings.refused.Store(true)
		}

		switch {
		case u.dialed.isRefusedBy(refused):
		case !mayBeForgotten(refused, u.dialed.sessionID()),
			errors.Is(reply, mcp.ErrConnectionClosed) && u.dialed.isEndedByOne(reply):
			return isEnded
		}
		return refusesAll
	case !mayRefuseAll(reply):
		return isSpared
	case isSameRefusal(reply, refused):
		s.pings.refused.Store(true)
		return refusesAll
	}
	return nothing
}

// mayBeForgotten reports whether a server may refuse a call so since it has forgotten the session, or takes its token
// no more, rather than for what the call is.
func mayBeForgotten(refused error, session string) bool {
	var wire *jsonrpc.Error
	mistaken := errors.As(refused, &wire) && isMistake(wire.Code)
	switch statusOf(lastWords(refused)) {
	case http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity, http.StatusRequestHeaderFieldsTooLarge:
		mistaken = true
	}
	return session != "" && !mistaken || isSessionUnknown(refused, session)
}

// refusesPings reports whether the server, or something before it, has refused a ping with this error, which may be
// nil, or has answered it by what the SDK can't read. The next session tells whether it does so each time.
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
		return fmt.Errorf("%w: client is closing: %w", mcp.ErrConnectionClosed, dialed.reason()) // meanwhile
	}
	return err
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
func ping(ctx context.Context, cs *mcp.ClientSession) error { return pingWith(ctx, cs, mcp.Meta{}) }

// pingWith is ping with a _meta, to which it may add.
func pingWith(ctx context.Context, cs *mcp.ClientSession, meta mcp.Meta) error {
	if r := cs.InitializeResult(); r != nil && r.ProtocolVersion >= protocolStateless {
		meta[mcp.MetaKeyProtocolVersion], meta[mcp.MetaKeyClientCapabilities] = r.ProtocolVersion, struct{}{}
	}

	err := cs.Ping(ctx, &mcp.PingParams{Meta: meta})
	if err == nil {
		return nil
	}
	p, ok := partsOf(err, known{})
	if !ok {
		return errUnreadablePing
	}
	if len(p.said) > 0 {
		err = p.said[len(p.said)-1] // without what the client's middleware makes of it
	}
	if isAnswered(err) {
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

// isClosed reports whether the error of a ping, which may be nil, says that the connection of the given session is closed.
// The SDK refuses a ping at once then.
func isClosed(err error, session string) bool {
	return errors.Is(err, mcp.ErrConnectionClosed) || err != nil && endsSession(err, session)
}
