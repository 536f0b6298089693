package resilience

import (
	"io"
	"net"
	"net/url"
)

// refused is the only reason that certainly precedes any effect.
const refused = "connection refused"

// lostReason returns in our own words why err means that a connection is gone, or "" if it
// doesn't.
func lostReason(err error) string {
	switch x := err.(type) {
	case nil:
		return ""
	case errno: // implements net.Error too, even ENOENT
		return lostErrno[x]
	case *net.ParseError, *net.AddrError: // implement net.Error, but concern no connection
		return ""
	case *url.Error: // implements net.Error, even for a URL that can't be parsed
		if x.Op != "parse" && x.Err == io.EOF {
			return "connection closed by the other side"
		}
		return lostReason(x.Err)
	}

	for _, inner := range unwrap(err) {
		if r := lostReason(inner); r != "" {
			return r
		}
	}

	switch err {
	case net.ErrClosed:
		return "connection closed"
	case io.ErrUnexpectedEOF:
		return "connection closed by the other side"
	}

	switch x := err.(type) {
	case *net.DNSError:
		return "host not found"
	case net.Error:
		if x.Timeout() {
			return "network timeout"
		}
		return "network error"
	}
	return ""
}

// hadNoEffect reports whether err is certain to have left the backend as it was: it is
// marked so, or the connection was refused or never made. Of several joined errors, all must
// be.
func hadNoEffect(err error) bool {
	switch x := err.(type) {
	case *marked:
		if x.class == ClassTransient {
			return true
		}
	case *notMade:
		return true
	case *net.OpError:
		return x.Op == "dial"
	case *net.DNSError:
		return true
	case errno:
		return lostErrno[x] == refused
	case *Error:
		// The cause of any other code is the last of several things that happened, and says
		// nothing about those before it.
		if x.Code != CodeConnectionLost && x.Code != CodeToolFailed {
			return false
		}
	}

	inner := unwrap(err)
	for _, e := range inner {
		if !hadNoEffect(e) {
			return false
		}
	}
	return len(inner) > 0
}

func unwrap(err error) []error {
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		if inner := x.Unwrap(); inner != nil {
			return []error{inner}
		}
	case interface{ Unwrap() []error }:
		return x.Unwrap()
	}
	return nil
}
