package resilience_test

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

const errorTable = "docs/errors.md"

var updateErrors = flag.Bool("errors.update", false, "rewrite the table of "+errorTable)

// TestTableOfErrors writes the table of docs/errors.md from what a guard does, and compares it with the file:
//
//	go test -run TestTableOfErrors . -errors.update
func TestTableOfErrors(t *testing.T) {
	var table strings.Builder
	runInBubble(t, "rows", func(t *testing.T) {
		for _, section := range errorSections() {
			const columns = "| | behind an adapter | in plain `Do` |\n|---|---|---|\n"
			fmt.Fprintf(&table, "\n### %s\n\n%s", section.title, columns)
			for _, r := range section.rows {
				fmt.Fprintf(&table, "| %s | %s\n", r.name, columnsOf(t, r))
			}
		}
	})
	if t.Failed() {
		return
	}

	text, err := os.ReadFile(errorTable)
	require.NoError(t, err)
	const marker = "<!-- The rest is what TestTableOfErrors has seen. -->\n"
	head, _, found := strings.Cut(string(text), marker)
	require.True(t, found)
	want := head + marker + table.String()
	if *updateErrors {
		require.NoError(t, os.WriteFile(errorTable, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text))
}

// An errorRow is a row of the table. Its errors have the same effect, wrapped or not.
type errorRow struct {
	name string
	errs []error
}

type errorSection struct {
	title string
	rows  []errorRow
}

// columnsOf returns the two columns of a row.
func columnsOf(t *testing.T, r errorRow) (columns string) {
	for _, err := range r.errs {
		for _, err := range []error{err, fmt.Errorf("x: %w", err)} {
			adapter, plain := faultOf(t, err, resilience.ClassNeutral), faultOf(t, err, resilience.ClassTransient)
			seen := fmt.Sprintf("%s | %s |", adapter, plain)
			if columns == "" {
				columns = seen
			}
			require.Equal(t, columns, seen, "%s: %#v", r.name, err)
		}
	}
	return columns
}

// A blame is what a guard makes of a tool's error.
type blame struct {
	counted, readOnly, any bool // retried: if the tool is ReadOnly, and if it is NonIdempotent
	rejected, limited      bool
}

func (f blame) String() string {
	switch f {
	case blame{counted: true, readOnly: true}:
		return "backend"
	case blame{counted: true, readOnly: true, any: true}:
		return "backend, no effect"
	case blame{counted: true}:
		return "tool"
	case blame{rejected: true}:
		return "agent"
	case blame{limited: true}:
		return "rate limit"
	case blame{}:
		return "–"
	}
	return fmt.Sprint([]bool{f.counted, f.readOnly, f.any, f.rejected, f.limited})
}

// faultOf calls tools that return err.
func faultOf(t *testing.T, err error, unexplained resilience.Class) blame {
	request := resilience.ForRequest(resilience.Request{Unexplained: unexplained})
	fails := func(context.Context) (int, error) { return 0, err }
	once, counted := runTool(t, writes, fails, request)
	again, _ := runTool(t, reads, fails, request)
	return blame{
		counted:  counted,
		rejected: once.Err.Code == resilience.CodeValidation,
		limited:  once.Err.Code == resilience.CodeRateLimited,
		readOnly: again.Attempts > 1,
		any:      once.Attempts > 1,
	}
}

func errorSections() []errorSection {
	op := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	path := func(op string, err error) error { return &fs.PathError{Op: op, Path: "/x", Err: err} }
	get := func(err error) error { return &url.Error{Op: "Get", URL: "http://x", Err: err} }
	call := os.NewSyscallError
	unknownHost := &net.DNSError{Err: "no such host", IsNotFound: true}

	return []errorSection{
		{"Connections", []errorRow{
			{"refused, or a dial that fails", errs(
				op("dial", call("connect", syscall.ECONNREFUSED)),
				op("dial", call("connect", syscall.EHOSTUNREACH)), op("dial", os.ErrDeadlineExceeded),
			)},
			{"reset, broken, timed out", errs(
				syscall.ECONNRESET, syscall.EPIPE, op("read", call("read", syscall.ECONNRESET)),
				op("read", os.ErrDeadlineExceeded),
			)},
			{"an answer of HTTP that breaks off before its end", errs(get(io.EOF), get(io.ErrUnexpectedEOF))},
			{"`net.ErrClosed`, `driver.ErrBadConn`", errs(
				net.ErrClosed, op("read", net.ErrClosed), driver.ErrBadConn,
			)},
			{"`io.ErrUnexpectedEOF` alone", errs(io.ErrUnexpectedEOF)},
			{"`io.EOF` alone", errs(io.EOF)},
			{"a name that DNS doesn't know", errs(unknownHost, op("dial", unknownHost), get(op("dial", unknownHost)))},
			{"a server of DNS that doesn't work", errs(&net.DNSError{Err: "server misbehaving", IsTemporary: true})},
			{"to dial an address or a network that isn't valid", errs(
				op("dial", &net.AddrError{Err: "missing port", Addr: "x"}), op("dial", net.UnknownNetworkError("x")),
			)},
			{"a message that is too large", errs(op("write", call("write", syscall.EMSGSIZE)))},
			{"an alert of TLS from the other side", errs(op("remote error", tls.AlertError(40)))},
			{"a handshake of TLS that times out", errs(get(handshakeTimeout{}))},
			{"a certificate that isn't valid", errs(get(&tls.CertificateVerificationError{Err: errBoom}))},
			{"an address of one's own that is in use, or at which nobody calls", errs(
				op("listen", call("bind", syscall.EADDRINUSE)), op("accept", os.ErrDeadlineExceeded),
			)},
		}},
		{"The operating system", []errorRow{
			{"EMFILE, ENFILE, EAGAIN, EINTR, ESTALE to open a file or start a program", errs(
				path("open", syscall.EMFILE), path("open", syscall.ENFILE), path("open", syscall.EAGAIN),
				path("open", syscall.EINTR), path("open", syscall.ESTALE), path("fork/exec", syscall.EAGAIN),
			)},
			{"the same to do anything else", errs(
				path("read", syscall.ESTALE), path("unlinkat", syscall.EINTR), syscall.EAGAIN,
				call("pipe2", syscall.EMFILE), &os.LinkError{Op: "rename", Err: syscall.ESTALE},
			)},
			{"`fs.ErrNotExist`, `fs.ErrExist`, `fs.ErrPermission`, EISDIR, ENOTDIR", errs(
				fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, path("open", syscall.ENOENT),
				path("read", syscall.EISDIR), path("open", syscall.ENOTDIR),
			)},
			{"a pipe that the other side has closed", errs(path("write", syscall.EPIPE))},
			{"ENOSPC, EIO", errs(path("write", syscall.ENOSPC), path("read", syscall.EIO))},
			{"a command that has failed, or was killed", errs(exitError(-1), exitError(1))},
		}},
		{"Databases: errors with a method `SQLState() string`", []errorRow{
			{
				"08, but for 08P01; 40, 53, 57 and 58, but for those below",
				each[sqlError]("08006", "40002", "53300", "57P01", "58030"),
			},
			{"40001, 40P01: rolled back", each[sqlError]("40001", "40P01")},
			{
				"08P01, 53400, 55P03, 57014: garbled, too large, locked by another, canceled",
				each[sqlError]("08P01", "53400", "55P03", "57014"),
			},
			{
				"any other class, 58P01, 58P02",
				each[sqlError]("22P02", "23505", "28P01", "42601", "58P01", "58P02"),
			},
			{"00, 01, 02", each[sqlError]("00000", "01000", "02000")},
			{"HY, 70: MySQL's for anything else", each[sqlError]("HY000", "70100")},
			{"MySQL's too many connections (1040, 1203, 1226), shutdown, and `mysql.ErrInvalidConn`", errs(
				&mySQLError{Number: 1040}, mysqlError("08004"), // without an SQLSTATE, or with one
				&mySQLError{Number: 1203, SQLState: [5]byte([]byte("42000"))},
				&mySQLError{Number: 1226, SQLState: [5]byte([]byte("42000"))},
				mysqlError("08S01"), errors.New("invalid connection"),
			)},
			{"MySQL's deadlock", errs(mysqlError("40001"))},
			{"MySQL's duplicate key, syntax error, missing table", errs(
				mysqlError("23000"), mysqlError("42000"), mysqlError("42S02"),
			)},
		}},
		{"HTTP: errors with a method `StatusCode() int` or `HTTPStatusCode() int`", []errorRow{
			{"429", statuses(429)},
			{"5xx but for 501 and 505", statuses(500, 502, 503, 504, 599)},
			{"408, 423, 425: too slow, locked by another, too early", statuses(408, 423, 425)},
			{"any other 4xx, 501, 505", statuses(400, 401, 403, 404, 409, 499, 501, 505)},
			{"below 400", statuses(0, 200, 302, 399)},
			{"an AWS SDK's code for throttling, with any status", errs(
				codeError("SlowDown"), &awsResponse{400, codeError("ThrottlingException")},
			)},
			{"any other code of an AWS SDK", errs(codeError("NoSuchKey"))},
		}},
		{"Failed results of MCP that have only a text, by its end (`ResultError`)", []errorRow{
			{"`: connection refused`", results(
				"dial tcp 127.0.0.1:80: connect: connection refused", "connection refused",
			)},
			{"`: connection reset by peer`, `: broken pipe`, `: no route to host`, `: network is unreachable`", results(
				"read tcp 10.0.0.7:80: read: connection reset by peer", "write tcp 10.0.0.7:80: write: broken pipe",
				"dial tcp 10.0.0.7:80: connect: no route to host",
				"dial tcp 10.0.0.7:80: connect: network is unreachable",
			)},
			{"`: TLS handshake timeout`", results("net/http: TLS handshake timeout", "x: TLS handshake timeout")},
			{"`: i/o timeout`, and net/http's other timeouts", results(
				"dial tcp 10.0.0.7:80: i/o timeout",
				"net/http: timeout awaiting response headers",
				`Get "http://x": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
				`context deadline exceeded (Client.Timeout or context cancellation while reading body)`,
			)},
			{"`: context deadline exceeded`", results("query: context deadline exceeded")},
			{"`: context canceled`", results("query: context canceled", "query: CANCELED: The call was canceled")},
			{"`: EOF`, `: unexpected EOF` after a quoted URL or an address", results(
				`Post "http://x/y?z=1": EOF`, `Get "https://x": unexpected EOF`,
				"10.0.0.7:80: EOF", "tcp [::1]:80: EOF",
			)},
			{"`429 Too Many Requests`", results("status 429 Too Many Requests", "429 Too Many Requests")},
			{"the status lines of 500, 502, 503 and 504", results(
				"500 Internal Server Error", "GET /: 502 Bad Gateway",
				"unexpected status 503 Service Unavailable\n", "HTTP/1.1 504 Gateway Timeout",
			)},
			{"any other text", results(
				"", `no user named "connection refused"`,
				"no user named connection refused", "connection refused by the user",
				"EOF", "x.yaml:12: unexpected EOF", `no table "x": EOF`, "404 Not Found",
				"error 1503 Service Unavailable",
			)},
		}},
		{"gRPC: errors with a method `GRPCStatus`", []errorRow{
			{
				"deadline exceeded, resource exhausted, aborted, internal, unavailable, data loss",
				each[grpcError](4, 8, 10, 13, 14, 15),
			},
			{"canceled, unknown", each[grpcError](1, 2)},
			{"any other", each[grpcError](3, 5, 6, 7, 9, 11, 12, 16)},
		}},
		{"What a program says", []errorRow{
			{"`context.DeadlineExceeded`, of the tool's own", errs(context.DeadlineExceeded)},
			{"`context.Canceled`, while the caller is there", errs(context.Canceled)},
			{"the same, of a dial or a look-up", errs(
				op("dial", context.Canceled), op("dial", &net.DNSError{UnwrapErr: context.Canceled, Name: "db"}),
			)},
			{"a panic, `runtime.Goexit`", errs(&resilience.PanicError{Value: "p"}, resilience.ErrGoexit)},
			{"`MarkBackend`", errs(resilience.MarkBackend(errBoom))},
			{"`MarkNoEffect`", errs(resilience.MarkNoEffect(errBoom))},
			{"`MarkPermanent`, `backoff.Permanent`", errs(resilience.MarkPermanent(errBoom))},
			{"`MarkInvalid`", errs(resilience.MarkInvalid(errBoom))},
			{"`MarkNeutral`", errs(resilience.MarkNeutral(errBoom))},
			{"an `*Error` with CodeValidation or CodeToolNotFound", errs(
				&resilience.Error{Code: resilience.CodeValidation, Message: "No such row"},
			)},
			{"an `*Error` with another code that is Retryable", errs(
				&resilience.Error{Code: "BUSY", Message: "Busy", Retryable: true},
			)},
			{"one that isn't Retryable", errs(&resilience.Error{Code: "BROKEN", Message: "Broken"})},
			{"anything else", errs(errBoom, fmt.Errorf("x: %w", errBoom))},
		}},
	}
}

// results returns the errors of failed results with these texts.
func results(texts ...string) (all []error) {
	for _, text := range texts {
		all = append(all, resilience.ResultError(text))
	}
	return all
}

// handshakeTimeout is like net/http's error, whose type isn't exported.
type handshakeTimeout struct{}

func (handshakeTimeout) Error() string   { return "net/http: TLS handshake timeout" }
func (handshakeTimeout) Timeout() bool   { return true }
func (handshakeTimeout) Temporary() bool { return true }

// codeError is like an error of an AWS SDK.
type codeError string

func (e codeError) Error() string     { return "api error " + string(e) }
func (e codeError) ErrorCode() string { return string(e) }

// awsResponse is like the error around it.
type awsResponse struct {
	status int
	error
}

func (e *awsResponse) Unwrap() error       { return e.error }
func (e *awsResponse) HTTPStatusCode() int { return e.status }

// mySQLError is like the error of go-sql-driver/mysql.
type mySQLError struct {
	Number   uint16
	SQLState [5]byte
	Message  string
}

func (e *mySQLError) Error() string { return e.Message }

func mysqlError(state string) error {
	return &mySQLError{SQLState: [5]byte([]byte(state)), Message: "mysql"}
}

func errs(all ...error) []error { return all }

// each returns errors of one type with these codes.
func each[E error](codes ...E) (all []error) {
	for _, c := range codes {
		all = append(all, c)
	}
	return all
}

// statuses returns errors with these statuses of HTTP.
func statuses(codes ...int) (all []error) {
	for _, c := range codes {
		all = append(all, statusError(c), awsError(c))
	}
	return all
}
