package resilience

import (
	"io"
	"net"
	"net/url"
	"reflect"
	"strings"
)

// refused is the only reason that certainly precedes any effect.
const refused = "connection refused"

// lostReason returns in our own words why t means that a connection is gone, or "" if it
// doesn't.
func (t errorTree) lostReason() string { return t.lostBy(true) }

// surelyLost reports whether t means that a connection to a backend is gone. An agent can bring about as well
// that a host doesn't exist, whose name it chose, and that input breaks off, which it sent.
func (t errorTree) surelyLost() bool { return t.lostBy(false) != "" }

// lostBy implements lostReason, and surelyLost without what is doubtful.
func (t errorTree) lostBy(doubtful bool) string {
	switch x := t.err.(type) {
	case nil:
		return ""
	case errno: // implements net.Error too, even ENOENT
		return lostErrno[x]
	case *net.ParseError, *net.AddrError: // implement net.Error, but concern no connection
		return ""
	case *net.OpError:
		switch inner := x.Err.(type) {
		case *net.ParseError, *net.AddrError, net.UnknownNetworkError, net.InvalidAddrError:
			return "" // it dialed nobody
		case *net.DNSError:
			return hostNotFound(inner, doubtful)
		}
	case *url.Error: // implements net.Error, even for a URL that can't be parsed
		if x.Op != "parse" && (x.Err == io.EOF || x.Err == io.ErrUnexpectedEOF) {
			return "connection closed by the other side"
		}
	}

	for _, inner := range t.wraps {
		if r := inner.lostBy(doubtful); r != "" {
			return r
		}
	}

	if isBrokenHTTP2(t.err) {
		return "connection closed by the other side"
	}
	switch t.err {
	case net.ErrClosed:
		return "connection closed"
	case io.ErrUnexpectedEOF:
		if doubtful {
			return "connection closed by the other side"
		}
	}

	switch x := t.err.(type) {
	case *net.DNSError:
		return hostNotFound(x, doubtful)
	case *url.Error:
		return "" // its cause has said nothing
	case net.Error:
		return netReason(x)
	}
	return ""
}

// isBrokenHTTP2 reports whether err says that a server has reset a stream of HTTP/2, or is about to close the
// connection (RFC 9113, sections 6.4 and 6.8). Its types in net/http aren't exported; they have the fields of
// those in golang.org/x/net/http2.
func isBrokenHTTP2(err error) bool {
	t := reflect.Indirect(reflect.ValueOf(err)).Type()
	if !strings.Contains(t.PkgPath(), "net/http") {
		return false
	}
	name := strings.TrimPrefix(t.Name(), "http2")
	return name == "StreamError" || name == "GoAwayError"
}

func hostNotFound(err *net.DNSError, doubtful bool) string {
	if err.IsNotFound && !doubtful {
		return ""
	}
	return "host not found"
}

// netReason asks the Timeout method of err, which may panic.
func netReason(err net.Error) (reason string) {
	defer func() {
		if recover() != nil {
			reason = ""
		}
	}()

	if err.Timeout() {
		return "network timeout"
	}
	return "network error"
}

// A loss is the reason why there is no connection.
type loss struct {
	err     error
	message string // for an agent; it holds no text of err, unless err is an *Error
}

// loss returns the loss that t means. It takes the message of an *Error in t, which was written for
// agents, or else describes t in words of our own.
func (t errorTree) loss() loss {
	if e, ok := as[*Error](t); ok && e != nil && e.Code == CodeConnectionLost && e.Message != "" {
		return loss{t.readable(), e.Message}
	}

	reason := t.lostReason()
	if t.is(io.EOF) {
		reason = "connection closed by the other side"
	}
	return loss{t.readable(), ConnectionLostError(reason).Message}
}

// repeated marks the last error of several attempts of which an earlier one may have had an
// effect: the last one doesn't speak for all of them.
type repeated struct{ error }

func (r *repeated) Unwrap() error { return r.error }

// hadNoEffect reports whether t is certain to have left the backend as it was: it is
// marked so, or the connection was refused or never made. Of several joined errors, all must
// be.
func (t errorTree) hadNoEffect() bool {
	switch x := t.err.(type) {
	case *marked:
		return x.noEffect
	case *notMade:
		return true
	case *repeated, *PanicError:
		return false
	case *blamed:
		if x.changed {
			return t.all(errorTree.markedHarmless)
		}
		if x.verdict != nil && x.verdict.refused && t.tellsNothing() {
			return true
		}
	case *net.OpError:
		return x.Op == "dial"
	case *net.DNSError:
		return true
	case errno:
		return lostErrno[x] == refused || hiccups[x]
	case *Error:
		if x.speaksForSeveral() {
			return false
		}
	}

	return signOf(t.err, len(t.wraps) == 0) == signHiccup || t.all(errorTree.hadNoEffect)
}

// markedHarmless is hadNoEffect for an attempt that has sent what may have changed something: then only the
// program itself knows better, and says so by a mark.
func (t errorTree) markedHarmless() bool {
	switch x := t.err.(type) {
	case *marked:
		return x.noEffect
	case *repeated, *PanicError:
		return false
	case *Error:
		if x.speaksForSeveral() {
			return false
		}
	}
	return t.all(errorTree.markedHarmless)
}

// speaksForSeveral reports whether the cause of e is only the last of several things that happened, and says
// nothing about those before it.
func (e *Error) speaksForSeveral() bool {
	return e.Code != CodeConnectionLost && e.Code != CodeToolFailed
}
