package resilience

import (
	"reflect"
	"slices"
	"strings"
)

// A sign is what the type of an error tells about whose fault it is.
type sign uint8

const (
	signNone     sign = iota
	signSilent        // the backend has answered, which says nothing: agents bring that about
	signRejected      // the backend, or the operating system, has answered: the request can't be served
	signTrouble       // the backend is in trouble
	signTimeout       // trouble: a deadline has passed
	signHiccup        // trouble that certainly left everything as it was
)

// evidence is what the types of an error, and of those that it wraps, tell.
type evidence struct {
	lost       string // in our own words, why a connection is gone; empty if none is
	sign       sign
	surelyLost bool // it is one to a backend: no agent can bring that about
	noEffect   bool // certainly nothing was done, so that repeating is safe
	harmless   bool // it is marked so
	repeated   bool // it is the last of several
	waits      retryAfterError
	blamed     *blamed // nil unless it is the error itself
}

// join adds the evidence of another one of several errors. One that tells of trouble decides what their sign
// is, and of more trouble than that a deadline has passed before others; all must have had no effect.
func (e *evidence) join(inner *evidence) {
	switch {
	case e.sign <= signSilent, e.sign < signTrouble && inner.sign >= signTrouble:
		e.sign = max(e.sign, inner.sign)
	case e.sign == signTimeout && inner.sign >= signTrouble:
		e.sign = inner.sign
	}
	if inner.lost != "" && (e.lost == "" || e.lost == networkTimeout) {
		e.lost = inner.lost
	}
	e.surelyLost = e.surelyLost || inner.surelyLost
	e.noEffect = e.noEffect && inner.noEffect
	e.harmless = e.harmless && inner.harmless
	e.repeated = e.repeated || inner.repeated
	if e.waits == nil {
		e.waits = inner.waits
	}
}

// addEvidence adds what err itself tells, which is asked first.
func (f *facts) addEvidence(err error) {
	from := reflect.Indirect(reflect.ValueOf(err)).Type().PkgPath()
	own := f.signOf(err, from)
	if own > signSilent || f.sign == signNone {
		f.sign = own
	}
	f.addLoss(err, from)
	f.addEffect(err, own)

	if x, ok := asItself[retryAfterError](err); ok {
		f.waits = x
	}
}

// signOf asks methods of err, which may panic. Its type is from a package with this path.
func (f *facts) signOf(err error, from string) (s sign) {
	defer func() {
		if recover() != nil {
			s = signNone
		}
	}()

	switch x := err.(type) {
	case *Error:
		return signNone
	case errno:
		if hiccups[x] {
			return signHiccup
		}
	case interface{ SQLState() string }:
		return signOfSQLState(x.SQLState())
	case interface{ HTTPStatusCode() int }:
		return signOfStatus(x.HTTPStatusCode())
	case interface{ StatusCode() int }:
		return signOfStatus(x.StatusCode())
	}
	if s := signOfGRPC(err); s != signNone || f.wraps {
		return s
	}

	if f.has(isNotExist|isExist|isPermission) || isRejection(err) {
		return signRejected
	}
	if containsAny(from, driversOfSQLite) {
		return signOfSQLite(err)
	}
	return signNone
}

// driversOfSQLite are their import paths. That of an application, or of a server of MCP for SQLite, may have the word,
// too.
var driversOfSQLite = []string{
	"modernc.org/sqlite", "github.com/mattn/go-sqlite3", "github.com/ncruces/go-sqlite3", "github.com/glebarez/go-sqlite",
	"github.com/tailscale/sqlite", "crawshaw.io/sqlite", "zombiezen.com/go/sqlite",
}

// signOfSQLite reads the code of an error of a driver of SQLite, of which there are several: a method Code, or a
// field, which may be unexported. Its low byte is 5 if the database is locked, and 6 if a table is. The text of an
// error won't do, since an agent may have written it.
func signOfSQLite(err error) sign {
	v := reflect.Indirect(reflect.ValueOf(err))
	code, ok := result(reflect.ValueOf(err).MethodByName("Code"))
	if !ok && v.Kind() == reflect.Struct {
		code = v.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, "code") })
	}

	var n uint64
	switch {
	case code.CanInt():
		n = uint64(code.Int())
	case code.CanUint():
		n = code.Uint()
	}
	if n &= 0xff; n == 5 || n == 6 {
		return signTrouble
	}
	return signNone
}

// signOfSQLState reads the class of an SQLSTATE, as PostgreSQL documents them (Appendix A of its
// manual): 08 is a connection's, 40 a transaction's that was rolled back or whose end isn't known, 53
// insufficient resources, 57 an operator's intervention, and 58 a system error.
func signOfSQLState(state string) sign {
	if len(state) != 5 {
		return signNone
	}

	switch state {
	case "40001", "40P01": // it was rolled back: a serialization failure, a deadlock
		return signHiccup
	case "08P01", "53400", "57014", "55P03": // garbled, too large, canceled, or locked by another: agents do that
		return signSilent
	case "58P01", "58P02": // a file that doesn't exist, or exists, as with COPY
		return signRejected
	}
	switch state[:2] {
	case "08", "40", "53", "57", "58":
		return signTrouble
	case "00", "01", "02": // success, a warning, no data
		return signNone
	}
	return signRejected
}

// signOfStatus reads an HTTP status. 501 and 505 are said of the request, and 504 of a deadline. A request that came
// too slowly (408) or too early (425), or for what another has locked (423), may be made again as it is.
func signOfStatus(status int) sign {
	switch {
	case status == 408, status == 423, status == 425:
		return signSilent
	case status == 501, status == 505:
		return signRejected
	case status == 504:
		return signTimeout
	case status == 429, status >= 500:
		return signTrouble
	case status >= 400:
		return signRejected
	}
	return signNone
}

// signOfGRPC reads the status of an error of gRPC's, whose package this one doesn't import. The numbers
// are those of google.golang.org/grpc/codes.
func signOfGRPC(err error) sign {
	if reflect.TypeOf(err).NumMethod() == 1 {
		return signNone // most errors have no method but Error, and to look for one by its name takes long
	}
	code, ok := result(reflect.ValueOf(err).MethodByName("GRPCStatus"))
	if ok {
		code, ok = result(code.MethodByName("Code"))
	}
	if !ok || code.Kind() != reflect.Uint32 {
		return signNone
	}

	switch code.Uint() {
	case 0: // it has no status, so nobody knows
		return signNone
	case 8: // also of a message that is too large for one side
		if containsAny(err.Error(), tooLarge) {
			return signRejected
		}
		return signTrouble
	case 13:
		return signOfInternal(err.Error())
	case 4: // deadline exceeded
		return signTimeout
	case 14, 15: // unavailable, data loss
		return signTrouble
	case 3, 5, 6, 7, 9, 10, 11, 12, 16: // invalid argument, not found, already exists, … , aborted, … , unauthenticated
		return signRejected
	}
	return signSilent // canceled, and unknown, which a server makes of any error
}

// tooLarge is what implementations of gRPC say of a message that is too large: those in Go, Node and C, in Java, for
// .NET, and in Swift.
var tooLarge = []string{
	"larger than max", "exceeds maximum size", "exceeds the maximum configured message size",
	"exceeded the configured maximum payload size",
}

// unsent is what gRPC's client in Go says of a request that it can't send, in a status INTERNAL: its metadata, message
// or token isn't valid, or too large.
var unsent = []string{
	"grpc: error while marshaling", "grpc: Compressor is not installed", "desc = header key ",
	"desc = there is an empty key in the header", "desc = header list size to send ",
	"desc = transport: per-RPC creds failed", "desc = transport: received per-RPC creds error",
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// signOfInternal reads the text of a status INTERNAL, which Go's client also makes of a proxy's HTTP status 400.
func signOfInternal(text string) sign {
	switch {
	case containsAny(text, unsent):
		return signNone
	case strings.Contains(text, "desc = unexpected HTTP status code received from server: 400"):
		return signRejected
	}
	return signTrouble
}

// result calls a method without arguments that returns one value.
func result(method reflect.Value) (v reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return v, false
	}
	return method.Call(nil)[0], true
}

// A blamed is an error of a tool together with what a guard knows besides, as the Classify fields receive it: what
// was reported of the backend, and that the caller is here, so that context.Canceled is the tool's own. It has the
// text of the error.
type blamed struct {
	error
	verdict      *verdict // nil if there is none
	changed      bool     // a request may have changed something
	unexplained  Class    // of a failure of which nothing is known
	inconclusive bool     // it is a timeout that isn't counted: see Classify
}

func (b *blamed) Unwrap() error { return b.error }

// tellsNothing reports whether a tool's error leaves open what has happened.
func (f *facts) tellsNothing() bool {
	return !f.said && !f.repeated && f.sign <= signSilent && f.lost == "" &&
		!f.has(isDeadlineExceeded) && !f.has(isUnreadable)
}

// isTrouble reports whether the types of a tool's error tell of trouble.
func (f *facts) isTrouble() bool {
	return f.sign >= signTrouble || f.surelyLost || f.has(isDeadlineExceeded)
}

// blame returns the class of a failure that nobody has said outright. What the tool's error tells of
// trouble counts first, since it may have happened after the last report: while reading an answer, or
// with a backend that nothing reports on.
func (f *facts) blame() Class {
	var v *verdict
	if f.blamed != nil {
		v = f.blamed.verdict
	}

	switch {
	case v.inTrouble():
		return v.class
	case f.isTrouble():
		return ClassTransient
	case f.sign == signRejected:
		return ClassInvalid
	case v != nil:
		return v.class
	case f.neutral:
		return ClassNeutral
	case f.blamed != nil:
		return f.blamed.unexplained
	}
	return ClassTransient
}
