package gosdk

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A use is a call of [Use] that has a session.
type use struct {
	session *Session
	cs      *mcp.ClientSession
	dialed  *sessionContext // nil if it has been closed meanwhile
	sent    reach
	around  *use // that this one is within; nil if there is none
	unsure  bool // nobody has waited to learn whether the session is lost

	mu     sync.Mutex
	others known // by uses within this one, up to maxOthers of each kind
}

// maxOthers is how many errors of each kind a use knows.
const maxOthers = 10_000

// useKey is the key of the innermost use in a context.
type useKey struct{}

// isStreamable reports whether the call has gone by streamable HTTP, and not only what f has done beside it.
func (u *use) isStreamable() bool {
	return u.sent.isStreamable() && (u.dialed == nil || u.dialed.streamable)
}

// isUnmade reports whether the SDK has certainly sent nothing of a call that has come as far as sent, since it knew the
// connection to be closed: what it says then a server could say, too.
func (u *use) isUnmade(p *parts, sent *reach) bool {
	isOther := func(said error) bool { return !isConnectionClosed(said) || isWhole(said) }
	return u.dialed != nil && u.dialed.streamable && !sent.began.Load() &&
		len(p.rest) == 0 && !slices.ContainsFunc(p.said, isOther)
}

// note notes what a use of s within u, which may be nil, has returned, and whether its session is lost, or may be: then
// that, and what the SDK has said in it, says nothing of u's own session, nor of those around it. Otherwise f may have used
// u's session there. What this package has made of it, as it has of the error of a dial, is no author's word.
func (u *use) note(s *Session, err error, lost, made bool) {
	if u == nil || err == nil {
		return
	}
	p, ok := partsOf(err, known{})
	if !ok {
		return
	}
	var news []error
	if lost {
		news = p.said
	}
	for layer := err; made && layer != nil && isOwn(layer); layer = errors.Unwrap(layer) {
		news = append(news, layer)
	}
	news = slices.DeleteFunc(news, func(err error) bool { return !isPointer(err) }) // these can be compared

	for ; u != nil; u = u.around {
		if u.session == s {
			continue
		}
		u.mu.Lock()
		if lost {
			add(&u.others.lost, news)
		} else {
			add(&u.others.made, news)
		}
		u.mu.Unlock()
	}
}

func add(all *map[error]bool, news []error) {
	if *all == nil {
		*all = make(map[error]bool)
	}
	for _, err := range news {
		if len(*all) < maxOthers {
			(*all)[err] = true
		}
	}
}

// known returns what the use knows of other sessions.
func (u *use) known() known {
	u.mu.Lock()
	defer u.mu.Unlock()
	return known{lost: maps.Clone(u.others.lost), made: maps.Clone(u.others.made)}
}

// lossIn reports whether the session has ended with a call of which the SDK has said this, and why, if that isn't what it
// says itself. A status that says so is enough to give the session up, unless a ping tells otherwise, but not to blame
// the server. However much was said, each question is asked once.
func (s *Session) lossIn(ctx context.Context, u *use, said []error) (lost bool, reason string) {
	id := u.dialed.sessionID()
	by := func(err error) bool { return endsSession(err, id) }
	switch found, refused := s.examine(ctx, u, said); found {
	case refusesAll:
		u.dialed.endsBy(refused)
		if isSessionUnknown(refused, id) {
			return true, reasonEnded
		}
		return true, reasonRefused
	case isEnded:
		by = func(err error) bool { return err == refused }
	case isSpared:
		id = ""
	}

	noResult := slices.IndexFunc(said, mayLackResult)
	switch {
	case slices.ContainsFunc(said, by):
	case noResult >= 0 && !u.isStreamable() && s.hasClosed(ctx, u, said[noResult]):
		by, reason = mayLackResult, reasonClosed
	case slices.ContainsFunc(said, isConnectionClosed) && isClosed(s.ping(ctx, waitTime(ctx), u.cs), u.dialed.sessionID()):
		by = isConnectionClosed
	default:
		u.unsure = u.unsure || ctx.Err() != nil && slices.ContainsFunc(said, isConnectionClosed)
		return false, ""
	}
	u.dialed.endsBy(said[slices.IndexFunc(said, by)])
	return true, reason
}

// endsSoon reports whether cs has ended, or does so within the waitTime.
func (s *Session) endsSoon(ctx context.Context, cs *mcp.ClientSession) bool {
	sessionCtx, open := s.contextOf(cs)
	if !open {
		return true
	}

	ctx, cancel := context.WithTimeout(ctx, waitTime(ctx))
	defer cancel()
	select {
	case <-sessionCtx.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// suggestClosed is for a call that was in flight when the Session was closed.
const suggestClosed = "This connection will not come back: use another tool or tell the user. " +
	"If this tool changes anything, check whether this call took effect."

// closedForGood returns the error of a call that has failed with err as the Session was closed.
func closedForGood(u *use, err error) error {
	e := connectionLost("closed for good", err)
	e.Retryable, e.Suggestion = false, suggestClosed
	if errors.Is(err, context.Canceled) || u.dialed.isClosedByOwner() {
		return resilience.MarkNeutral(e)
	}
	return resilience.MarkPermanent(e)
}

// withNextDial returns what a call that has failed with err returns, for which result stands. If that is CONNECTION_LOST, it
// tells when the next dial comes, as down does, which may be nil. Once the call's context has ended, a
// CONNECTION_LOST of this package's own gives way to err.
func withNextDial(result, err, down error, ended bool) error {
	e := resilience.AsError("", result)
	var next *resilience.Error
	if errors.As(down, &next) {
		e.RetryAfter = next.RetryAfter
	}

	switch _, made := result.(*resilience.Error); {
	case e.Code != resilience.CodeConnectionLost, ended && !made:
		return result
	case ended:
		return err
	}
	return e
}

// valueOf returns the SDK's session.
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
