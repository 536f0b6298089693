package resilience

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Reasons for a lost connection, in words for an agent.
const (
	refused        = "connection refused" // the only reason that certainly precedes any effect
	closedByPeer   = "connection closed by the other side"
	networkTimeout = "network timeout"
	hostNotFound   = "host not found"
)

// addEvidence adds the meaning of the standard library's variables and of types of errors. docs/errors.md has the same
// as a table.
func (m *meaning) addEvidence(err error) {
	switch {
	case is(err, context.DeadlineExceeded):
		m.trouble(CodeTimeout, timedOut)
	case is(err, driver.ErrBadConn, net.ErrClosed):
		m.trouble(CodeConnectionLost, "connection closed")
	case err == io.ErrUnexpectedEOF:
		m.code, m.reason = CodeConnectionLost, closedByPeer
	case m.weight == weightUnknown && is(err, fs.ErrNotExist, fs.ErrExist, fs.ErrPermission):
		m.answer()
	default:
		m.addType(err)
	}
}

func (m *meaning) addType(err error) {
	switch x := err.(type) {
	case syscall.Errno:
		m.addErrno(x)
	case *net.OpError:
		m.addOp(x)
	case *net.DNSError:
		m.addLookUp(x)
	case *net.ParseError, *net.AddrError, net.UnknownNetworkError, net.InvalidAddrError:
		m.unknown()
	case *url.Error: // of an http.Client that got no answer, or a part of one
		if x.Op != "parse" && (x.Err == io.EOF || x.Err == io.ErrUnexpectedEOF) {
			m.trouble(CodeConnectionLost, closedByPeer)
		}
	case *fs.PathError:
		m.addPath(x)

	case *tls.CertificateVerificationError: // an agent may have chosen the host
		m.unknown()
		m.noEffect = true
	case interface{ SQLState() string }:
		m.addSQLState(x.SQLState())
	case interface{ HTTPStatusCode() int }:
		m.addStatus(x.HTTPStatusCode())
	case interface{ StatusCode() int }:
		m.addStatus(x.StatusCode())
	case interface{ ErrorCode() string }: // of an AWS SDK
		if slices.Contains(throttled, x.ErrorCode()) {
			m.refuse()
		}
	case net.Error: // only its timeouts: packages use its methods for any answer of a server
		if x.Timeout() {
			m.trouble(CodeConnectionLost, networkTimeout)
			m.noEffect = err.Error() == "net/http: TLS handshake timeout" // of a type that isn't exported
		}
	default:
		m.addOther(err)
	}
}

// trouble notes that the backend is in trouble, and why if that is known. The code of an inner error is more precise.
func (m *meaning) trouble(code Code, reason string) {
	m.weight, m.class, m.ambiguous = weightTrouble, ClassTransient, false
	if m.code == "" && reason != "" {
		m.code, m.reason = code, reason
	}
}

// refuse notes that a rate limit declined the request before anything was done.
func (m *meaning) refuse() {
	m.limit()
	m.noEffect = true
}

// answer notes that the backend, or the operating system, rejected the request.
func (m *meaning) answer() { m.weight, m.class = weightAnswer, ClassInvalid }

// unknown notes that an agent brings such errors about, as well as a backend in trouble.
func (m *meaning) unknown() {
	m.weight, m.ambiguous = weightUnknown, true
	m.code, m.reason = "", ""
}

// addErrno adds an error number. EINTR and its like are without a reason.
func (m *meaning) addErrno(n syscall.Errno) {
	if lost, ok := troubles[n]; ok {
		m.trouble(CodeConnectionLost, lost)
		m.noEffect = lost == refused
	} else if errors.Is(n, syscall.EISDIR) || errors.Is(n, syscall.ENOTDIR) {
		m.answer()
	}
}

// addOp adds an operation on a connection. Dials, which net/http names in three ways, have no effect.
func (m *meaning) addOp(op *net.OpError) {
	m.noEffect = op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect"
	var n syscall.Errno
	sys := errors.As(op.Err, &n)
	switch {
	case op.Op == "listen", op.Op == "accept", op.Op == "route": // at an address of this machine's
		m.unknown()
	case m.weight == weightTrouble, m.ambiguous:
	case op.Op == "remote error", // the other side rejects a handshake of TLS
		sys && (op.Op == "write" || n == syscall.EINVAL): // a message that is too large, or an invalid address
		m.unknown()
	default:
		m.trouble(CodeConnectionLost, "network error")
	}
}

// addLookUp adds a failed look-up. Agents choose hosts that don't exist, and addresses for which no server is asked.
func (m *meaning) addLookUp(err *net.DNSError) {
	m.noEffect = true
	if err.IsNotFound || err.Err == "unrecognized address" {
		m.unknown()
		m.code, m.reason = CodeConnectionLost, hostNotFound // for callers that take unknown errors for trouble
		return
	}
	m.trouble("", "")
	m.code, m.reason = CodeConnectionLost, "the host can't be looked up" // a better reason than a timeout
}

// addPath adds an operation on a path, which is no connection: a program that an agent's words have ended doesn't read
// from its pipe either. To open a file, or to start a program, does nothing before it fails.
func (m *meaning) addPath(err *fs.PathError) {
	m.noEffect = m.weight == weightTrouble && m.code == "" && (err.Op == "open" || err.Op == "fork/exec")
	if m.code != "" {
		m.unknown()
	}
}

// addSQLState adds an SQLSTATE, whose classes are in Appendix A of PostgreSQL's manual: 08 is the connection's, 40 a
// transaction's that was rolled back or whose end is unknown, 53 means insufficient resources, 57 an operator's
// intervention, 58 a system error.
func (m *meaning) addSQLState(state string) {
	if len(state) != 5 {
		return
	}

	switch state[:2] {
	case "08", "40", "53", "57", "58":
		m.trouble("", "")
	case "00", "01", "02": // success, a warning, no data
	case "HY", "70": // MySQL's for any other error, or for a query that was killed
		m.unknown()
	default:
		m.answer()
	}
	switch state {
	case "40001", "40P01": // a serialization failure, a deadlock: it was rolled back
		m.noEffect = true
	case "08P01", "53400", "57014", "55P03": // garbled, too large, canceled, or locked by another: agents do that
		m.unknown()
	case "58P01", "58P02": // a file that doesn't exist, or exists, as with COPY
		m.answer()
	}
}

// addStatus adds an HTTP status. 501 and 505 are about the request. A request that came too slowly (408) or too early
// (425), or for something that is locked (423), may be made again as it is.
func (m *meaning) addStatus(status int) {
	switch {
	case status == 408, status == 423, status == 425:
		m.ambiguous = true
	case status == 504:
		m.trouble(CodeTimeout, timedOut)
	case status == 429:
		m.refuse()
	case status >= 500 && status != 501 && status != 505:
		m.trouble("", "status "+strconv.Itoa(status))
	case status >= 400:
		m.answer()
	}
}

// throttled holds the codes for throttling in the AWS SDKs and Tools Reference Guide, under "Retry behavior".
var throttled = []string{
	"BandwidthLimitExceeded", "EC2ThrottledException", "LimitExceededException", "PriorRequestNotComplete",
	"ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException",
	"SlowDown", "ThrottledException", "Throttling", "ThrottlingException", "TooManyRequestsException",
	"TransactionInProgressException",
}

// statusOfGRPC holds the HTTP status for each code of google.golang.org/grpc/codes, as gRPC gateways translate
// them. These differ: a server returns unknown (2) for any error, so it proves as little as a 408, and so does
// canceled (1). Exhausted resources (8) need not be a rate limit, and an aborted transaction (10) is trouble.
var statusOfGRPC = [...]int{200, 408, 408, 400, 504, 404, 409, 403, 503, 400, 503, 400, 501, 500, 503, 500, 401}

// addOther adds errors of packages that this one doesn't import, and that have no method to tell: those of gRPC and of
// go-sql-driver/mysql.
func (m *meaning) addOther(err error) {
	v := reflect.ValueOf(err)
	if status := v.MethodByName("GRPCStatus"); status.IsValid() {
		code := status.Call(nil)[0].MethodByName("Code").Call(nil)[0].Uint()
		if code < uint64(len(statusOfGRPC)) {
			m.addStatus(statusOfGRPC[code])
			if m.code == "" {
				m.reason = "" // no status of HTTP
			}
		}
		return
	}

	switch v = reflect.Indirect(v); {
	case v.Kind() != reflect.Struct:
	case v.Type() == plainText && err.Error() == "invalid connection":
		m.trouble(CodeConnectionLost, "connection closed")
	case v.FieldByName("SQLState").IsValid():
		m.addMySQL(v.FieldByName("SQLState"), v.FieldByName("Number"))
	}
}

// addMySQL adds an error of MySQL. The SQLSTATE of too many connections may be missing (1040), or 42000 if they are
// those of one user (1203, 1226).
func (m *meaning) addMySQL(state, number reflect.Value) {
	switch {
	case number.IsValid() && number.CanUint() && slices.Contains([]uint64{1040, 1203, 1226}, number.Uint()):
		m.trouble("", "")
	case state.CanInterface():
		code, _ := state.Interface().([5]byte)
		m.addSQLState(strings.Trim(string(code[:]), "\x00"))
	}
}

// plainText is the type of the errors that errors.New returns.
var plainText = reflect.TypeOf(errors.New("")).Elem()

// lostMessage returns the message for an agent about a connection that was lost by err: the message of an *Error, which
// was written for agents, or a reason in our own words.
func lostMessage(err error) string {
	m := meaningOf(err)
	switch {
	case m.own != nil && m.own.Code == CodeConnectionLost && m.own.Message != "":
		return m.own.Message
	case errors.Is(err, io.EOF):
		m.reason = closedByPeer
	case m.code == CodeTimeout:
		m.reason = networkTimeout
	}
	return ConnectionLostError(m.reason).Message
}
