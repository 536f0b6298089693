package resilience

import (
	"fmt"
	"time"
)

// An absence says why there is no connection.
type absence struct {
	err    *Error        // what Get returns
	cause  error         // the loss
	delay  time.Duration // until the next dial starts, or 0 if none is scheduled
	final  bool          // no further dial will be made by itself
	change int           // the last one of the connection's state
}

// endedBy returns e, of the end of a context, with the reason why there was no connection, and notes that the call wasn't
// made.
func (a absence) endedBy(e *Error) *Error {
	e = e.withCause(a.cause)
	e.Err = &notMade{e.Err}
	return e
}

// waitedUntil is endedBy for a wait. A tool that has waited until its timeout has exceeded that.
func (a absence) waitedUntil(e *Error) *Error {
	if e.Code == CodeTimeout {
		return e.withCause(a.cause)
	}
	return a.endedBy(e)
}

// look returns the connection, or why there is none.
func (c *Connector[C]) look() (*C, absence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.current.Load(); conn != nil {
		return conn, absence{}
	}
	return nil, absence{c.unavailable(), c.loss.err, c.schedule.untilDial(), c.state != ConnectionDown, c.changes}
}

// unavailable returns the error for a caller while there is no connection. It requires that c.mu is
// held.
func (c *Connector[C]) unavailable() *Error {
	switch c.state {
	case ConnectionExhausted:
		e := retryExhausted("", c.schedule.attempts)
		e.Err = &notMade{c.loss.err}
		e.Message = fmt.Sprintf("Connection lost: %d attempts to connect have failed", c.schedule.attempts)
		if c.schedule.attempts == 1 {
			e.Message = "Connection lost: the attempt to connect has failed"
		}
		e.giveUp(suggestOther) // until Reconnect
		return e
	case ConnectionClosed:
		e := ConnectionLostError("closed for good")
		e.Err = errClosed
		e.giveUp(suggestOther)
		return e
	}

	e := ConnectionLostError("")
	e.Message, e.Err = c.loss.message, &notMade{c.loss.err}
	e.RetryAfter = retryWhileDialing
	if !c.dialing() {
		e.RetryAfter = max(c.schedule.untilDial(), 1)
	}
	return e
}
