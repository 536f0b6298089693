package resilience

import (
	"context"
	"io"
	"io/fs"
	"reflect"
	"strings"
)

// A sign is what the type of an error tells about whose fault it is.
type sign uint8

const (
	signNone     sign = iota
	signRejected      // the backend, or the operating system, has answered: the request can't be served
	signTrouble       // the backend is in trouble
	signHiccup        // trouble that certainly left everything as it was
)

// sign looks for what the errors in t tell by their types, from the outside in. Of joined errors, one
// that tells of trouble decides.
func (t errorTree) sign() sign {
	if s := signOf(t.err, len(t.wraps) == 0); s != signNone {
		return s
	}

	found := signNone
	for _, inner := range t.wraps {
		switch s := inner.sign(); {
		case s >= signTrouble:
			return s
		case found == signNone:
			found = s
		}
	}
	return found
}

// signOf asks methods of err, which may panic.
func signOf(err error, leaf bool) (s sign) {
	defer func() {
		if recover() != nil {
			s = signNone
		}
	}()

	switch x := err.(type) {
	case nil, *Error:
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
	case interface{ ExitCode() int }:
		if x.ExitCode() == -1 {
			return signTrouble // a command that was killed
		}
	}
	if s := signOfGRPC(err); s != signNone || !leaf {
		return s
	}

	for _, answer := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission} {
		if isItself(err, answer) {
			return signRejected
		}
	}
	if isRejection(err) {
		return signRejected
	}
	return signOfSQLite(err)
}

// signOfSQLite reads the code of an error of a driver of SQLite, of which there are several: a method or a
// field Code, whose low byte is 5 if the database is locked, and 6 if a table is. The text of an error won't
// do, since an agent may have written it.
func signOfSQLite(err error) sign {
	v := reflect.Indirect(reflect.ValueOf(err))
	if !strings.Contains(v.Type().PkgPath(), "sqlite") {
		return signNone
	}
	code, ok := result(reflect.ValueOf(err).MethodByName("Code"))
	if !ok && v.Kind() == reflect.Struct {
		code = v.FieldByName("Code")
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
	}
	switch state[:2] {
	case "08", "40", "53", "57", "58":
		return signTrouble
	case "00", "01", "02": // success, a warning, no data
		return signNone
	}
	return signRejected
}

// signOfStatus reads an HTTP status. 501 and 505 are said of the request.
func signOfStatus(status int) sign {
	switch {
	case status == 501, status == 505:
		return signRejected
	case status == 429, status >= 500:
		return signTrouble
	case status >= 400 && status < 500:
		return signRejected
	}
	return signNone
}

// signOfGRPC reads the status of an error of gRPC's, whose package this one doesn't import. The numbers
// are those of google.golang.org/grpc/codes.
func signOfGRPC(err error) sign {
	code, ok := result(reflect.ValueOf(err).MethodByName("GRPCStatus"))
	if ok {
		code, ok = result(code.MethodByName("Code"))
	}
	if !ok || code.Kind() != reflect.Uint32 {
		return signNone
	}

	switch code.Uint() {
	case 8: // also of a message that is too large for one side
		if text := err.Error(); strings.Contains(text, "larger than max") || // Go, Node, and what is made with C
			strings.Contains(text, "exceeds maximum size") { // Java
			return signRejected
		}
		return signTrouble
	case 13: // internal, also of a request that Go's client can't send
		text := err.Error()
		if strings.Contains(text, "grpc: error while marshaling") || strings.Contains(text, "desc = header key ") ||
			strings.Contains(text, "grpc: Compressor is not installed") {
			return signNone
		}
		return signTrouble
	case 4, 10, 14, 15: // deadline exceeded, aborted, unavailable, data loss
		return signTrouble
	case 3, 5, 6, 7, 9, 11, 12, 16: // invalid argument, not found, already exists, … , unauthenticated
		return signRejected
	}
	return signNone // OK, canceled, and unknown, which a server makes of any error
}

// result calls a method without arguments that returns one value.
func result(method reflect.Value) (v reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return v, false
	}
	return method.Call(nil)[0], true
}

// A blamed is an error of a tool together with what is known of its backend, as the Classify fields
// receive it. It has the text of the error.
type blamed struct {
	error
	verdict     *verdict // nil if there is none
	changed     bool     // a request may have changed something
	unexplained Class    // of a failure of which nothing is known
}

func (b *blamed) Unwrap() error { return b.error }

// tellsNothing reports whether a tool's error leaves open what has happened.
func (t errorTree) tellsNothing() bool {
	_, explicit := t.explicitClass()
	_, again := as[*repeated](t)
	return !explicit && !again && t.sign() == signNone && t.lostReason() == "" &&
		!t.is(context.DeadlineExceeded) && !t.is(errUnreadable)
}

// blame returns the class of a failure that nobody has said outright. What the tool's error tells of
// trouble counts first, since it may have happened after the last report: while reading an answer, or
// with a backend that nothing reports on.
func (t errorTree) blame() Class {
	b, _ := t.err.(*blamed)
	var v *verdict
	if b != nil {
		v = b.verdict
	}
	s := t.sign()

	switch {
	case v.inTrouble():
		return v.class
	case s >= signTrouble, t.surelyLost(), t.is(context.DeadlineExceeded):
		return ClassTransient
	case s == signRejected:
		return ClassInvalid
	case v != nil && v.class == ClassNeutral && t.is(io.ErrUnexpectedEOF): // it broke off
		return ClassTransient
	case v != nil:
		return v.class
	case b != nil:
		return b.unexplained
	}
	return ClassTransient
}
