package gosdk

import (
	"context"
	"strings"
	"sync/atomic"
)

// A sessionContext is the context that a dial received. It ends with the session that was dialed.
type sessionContext struct {
	context.Context
	cancel context.CancelCauseFunc

	id         string // which the server has given the session, "" if it has given none
	streamable bool   // the dial has spoken streamable HTTP

	refusal atomic.Pointer[error] // by which the server refuses all that comes; nil if it doesn't, or isn't known to
	endedBy atomic.Pointer[error] // by which the session has ended, or was given up otherwise; nil if that isn't known
}

// until returns a context that also ends with ctx, and which done ends.
func (c *sessionContext) until(ctx context.Context) (both context.Context, done func()) {
	both, cancel := context.WithCancel(c)
	stop := context.AfterFunc(ctx, cancel)
	return both, func() { stop(); cancel() }
}

// sessionID returns the ID of the session, which is nil if it is over: the SDK's own ID waits while a login renews a token.
func (c *sessionContext) sessionID() string {
	if c == nil {
		return ""
	}
	return c.id
}

// refusesAllBy notes by which refusal the session, which is nil if it is over, is lost for all.
func (c *sessionContext) refusesAllBy(refused error) {
	if c != nil {
		c.refusal.CompareAndSwap(nil, &refused)
	}
}

// isRefusedBy reports whether the session, which is nil if it is over, is lost by the same refusal.
func (c *sessionContext) isRefusedBy(refused error) bool {
	if c == nil {
		return false
	}
	by := c.refusal.Load()
	return by != nil && isSameRefusal(*by, refused)
}

// endsBy notes an error by which the session ends, or has ended.
func (c *sessionContext) endsBy(err error) {
	if c != nil && err != nil {
		c.endedBy.CompareAndSwap(nil, &err)
	}
}

// reason returns why the session has ended. Its context doesn't tell: a login that is used with that by the next session
// would pass this end for that of its own connection.
func (c *sessionContext) reason() error {
	if by := c.endedBy.Load(); by != nil {
		return *by
	}
	return context.Cause(c)
}

// isClosedByOwner reports whether the session, which is nil if it is over, was up until Session.Close.
func (c *sessionContext) isClosedByOwner() bool {
	if c == nil {
		return true
	}
	by := c.endedBy.Load()
	return by != nil && *by == errByOwner
}

// isEndedByOne reports whether the session, which is nil if it is over, has ended since HTTP has refused a single
// request of it, or an answer could not be read: that tells nothing of others. The reply to a ping may say so, too.
func (c *sessionContext) isEndedByOne(reply error) bool {
	_, said, _ := strings.Cut(reply.Error(), "client is closing: ")
	if _, ended := refusalIn(said); ended || c == nil {
		return ended
	}
	by := c.endedBy.Load()
	if by == nil {
		return false
	}
	_, ofCall := refusal(*by)
	_, ofSession := refusalIn((*by).Error())
	return ofCall || ofSession
}
