package resilience_test

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
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
	"github.com/seed8d1e2389/resilience/testdata/modernc.org/sqlite"
	"github.com/seed8d1e2389/resilience/testdata/net/http2"
	"github.com/stretchr/testify/require"
)

const errorTable = "docs/errors.md"

var updateErrors = flag.Bool("errors.update", false, "rewrite the table of "+errorTable)

// A blame is what a guard makes of an error of a tool's.
type blame struct {
	counted, readOnly, any bool // repeated: if the tool is ReadOnly, and if it is NonIdempotent
	rejected               bool
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
	case blame{}:
		return "–"
	}
	return fmt.Sprintf("%+v", struct{ blame any }{[]bool{f.counted, f.readOnly, f.any, f.rejected}})
}

// faultOf calls tools that return err.
func faultOf(t *testing.T, err error, unexplained resilience.Class) blame {
	run := func(effect resilience.Effect) (*resilience.Guard, resilience.Result[int]) {
		g := guardWith(t, resilience.Tool{Effect: effect})
		request := resilience.ForRequest(resilience.Request{Unexplained: unexplained})
		return g, resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) { return 0, err }, request)
	}

	g, once := run(resilience.NonIdempotent)
	_, again := run(resilience.ReadOnly)
	return blame{
		counted:  g.Health()[0].ConsecutiveFailures == 1,
		rejected: once.Err.Code == resilience.CodeValidation,
		readOnly: again.Attempts > 1, any: once.Attempts > 1,
	}
}

// The table of docs/errors.md says what the guard does:
//
//	go test -run TestTableOfErrors . -errors.update
func TestTableOfErrors(t *testing.T) {
	type row struct {
		name string
		errs []error // of which the same becomes
	}
	errs := func(all ...error) []error { return all }
	sql := func(states ...string) (all []error) {
		for _, s := range states {
			all = append(all, sqlError(s))
		}
		return all
	}
	http := func(statuses ...int) (all []error) {
		for _, s := range statuses {
			all = append(all, statusError(s), awsError(s))
		}
		return all
	}
	grpc := func(codes ...uint32) (all []error) {
		for _, c := range codes {
			all = append(all, grpcError(c))
		}
		return all
	}
	op := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	path := func(op string, err error) error { return &fs.PathError{Op: op, Path: "/x", Err: err} }
	call := os.NewSyscallError

	var table strings.Builder
	runInBubble(t, "rows", func(t *testing.T) {
		for _, section := range []struct {
			title string
			rows  []row
		}{
			{"Connections", []row{
				{"refused, or a dial that fails", errs(
					op("dial", call("connect", syscall.ECONNREFUSED)),
					op("dial", call("connect", syscall.EHOSTUNREACH)), op("dial", os.ErrDeadlineExceeded),
				)},
				{"reset, broken, timed out", errs(
					syscall.ECONNRESET, syscall.EPIPE, op("read", call("read", syscall.ECONNRESET)),
					op("read", os.ErrDeadlineExceeded),
				)},
				{"an answer of HTTP that breaks off before its end", errs(
					&url.Error{Op: "Get", URL: "http://x", Err: io.EOF},
					&url.Error{Op: "Get", URL: "http://x", Err: io.ErrUnexpectedEOF},
				)},
				{"`io.ErrUnexpectedEOF` of a POST without Transport: its own body may have broken off", errs(
					&url.Error{Op: "Post", URL: "http://x", Err: io.ErrUnexpectedEOF},
				)},
				{"HTTP/2: a stream that is reset, a connection that is given up", errs(
					http2.StreamError{Code: 2}, &http2.GoAwayError{ErrCode: 2},
				)},
				{"the same, with a complaint (PROTOCOL_ERROR, COMPRESSION_ERROR, ENHANCE_YOUR_CALM …)", errs(
					http2.StreamError{Code: 1}, &http2.GoAwayError{ErrCode: 9}, &http2.GoAwayError{ErrCode: 11},
				)},
				{"`net.ErrClosed`, `driver.ErrBadConn`", errs(
					net.ErrClosed, op("read", net.ErrClosed), driver.ErrBadConn,
				)},
				{"`io.ErrUnexpectedEOF` alone", errs(io.ErrUnexpectedEOF)},
				{"`io.EOF` alone", errs(io.EOF)},
				{"a name that DNS doesn't know", errs(
					&net.DNSError{Err: "no such host", IsNotFound: true},
					op("dial", &net.DNSError{Err: "no such host", IsNotFound: true}),
				)},
				{"a server of DNS that doesn't work", errs(
					&net.DNSError{Err: "server misbehaving", IsTemporary: true},
				)},
				{"to dial an address or a network that isn't valid", errs(
					op("dial", &net.AddrError{Err: "missing port", Addr: "x"}),
					op("dial", net.UnknownNetworkError("x")),
				)},
				{"a message that is too large", errs(op("write", call("write", syscall.EMSGSIZE)))},
				{"an alert of TLS from the other side", errs(op("remote error", tls.AlertError(40)))},
				{"an address of one's own that is in use, or at which nobody calls", errs(
					op("listen", call("bind", syscall.EADDRINUSE)), op("accept", os.ErrDeadlineExceeded),
				)},
			}},
			{"The operating system", []row{
				{"EMFILE, ENFILE, EAGAIN, EINTR, ESTALE to open a file or start a program", errs(
					path("open", syscall.EMFILE), path("open", syscall.ENFILE), path("open", syscall.EAGAIN),
					path("open", syscall.EINTR), path("open", syscall.ESTALE),
					path("fork/exec", syscall.EAGAIN),
				)},
				{"the same to do anything else", errs(
					path("read", syscall.ESTALE), path("unlinkat", syscall.EINTR), syscall.EAGAIN,
					call("pipe2", syscall.EMFILE),
					&os.LinkError{Op: "rename", Err: syscall.ESTALE},
				)},
				{"EBUSY, ETXTBSY to open a file or start a program", errs(
					path("open", syscall.EBUSY), path("fork/exec", syscall.EBUSY),
				)},
				{"EBUSY, ETXTBSY to do anything else", errs(path("remove", syscall.EBUSY), syscall.EBUSY)},
				{"`fs.ErrNotExist`, `fs.ErrExist`, `fs.ErrPermission`, EISDIR, ENOTDIR", errs(
					fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, path("open", syscall.ENOENT),
					path("read", syscall.EISDIR), path("open", syscall.ENOTDIR),
				)},
				{"a pipe that the other side has closed", errs(path("write", syscall.EPIPE))},
				{"ENOSPC, EIO", errs(path("write", syscall.ENOSPC), path("read", syscall.EIO))},
				{"a command that has failed, or was killed", errs(killedError{}, exitError(1))},
			}},
			{"Databases: errors with a method `SQLState() string`, or of a driver of SQLite", []row{
				{"08, but for 08P01; 40, 53, 57 and 58, but for those below", sql("08006", "40002", "53300", "57P01", "57P03", "58030")},
				{"40001, 40P01: rolled back", sql("40001", "40P01")},
				{"08P01, 53400, 55P03, 57014: garbled, too large, locked by another, canceled", sql("08P01", "53400", "55P03", "57014")},
				{"any other class, 58P01, 58P02", sql("22P02", "23505", "28P01", "42601", "58P01", "58P02")},
				{"00, 01, 02", sql("00000", "01000", "02000")},
				{"SQLite: busy or locked", errs(sqlite.Method(5), sqlite.Method(6))},
			}},
			{"HTTP: errors with a method `StatusCode() int` or `HTTPStatusCode() int`", []row{
				{"429, 5xx but for 501 and 505", http(429, 500, 502, 503, 504, 599)},
				{"408, 423, 425: too slow, locked by another, too early", http(408, 423, 425)},
				{"any other 4xx, 501, 505", http(400, 401, 403, 404, 409, 499, 501, 505)},
				{"below 400", http(0, 200, 302)},
			}},
			{"gRPC: errors with a method `GRPCStatus`", []row{
				{"deadline exceeded, resource exhausted, internal, unavailable, data loss", grpc(4, 8, 13, 14, 15)},
				{"resource exhausted, as a message is too large", errs(
					saying{8, "grpc: received message larger than max (5242880 vs. 4194304)"},
				)},
				{"internal, as the client can't send the request", errs(
					saying{13, "grpc: error while marshaling: no message"},
				)},
				{"canceled, unknown", grpc(1, 2)},
				{"any other", grpc(3, 5, 6, 7, 9, 10, 11, 12, 16)},
			}},
			{"What a program says", []row{
				{"`context.DeadlineExceeded`, of the tool's own", errs(context.DeadlineExceeded)},
				{"`context.Canceled`, while the caller is there", errs(context.Canceled)},
				{"the same, of a dial or a look-up", errs(
					&net.OpError{Op: "dial", Net: "tcp", Err: context.Canceled},
					&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{UnwrapErr: context.Canceled, Name: "db"}},
				)},
				{"a panic, `runtime.Goexit`", errs(&resilience.PanicError{Value: "p"}, resilience.ErrGoexit)},
				{"`MarkBackend`", errs(resilience.MarkBackend(errBoom))},
				{"`MarkTransient`", errs(resilience.MarkTransient(errBoom))},
				{"`MarkPermanent`, `backoff.Permanent`", errs(resilience.MarkPermanent(errBoom))},
				{"`MarkInvalid`", errs(resilience.MarkInvalid(errBoom))},
				{"`MarkNeutral`", errs(resilience.MarkNeutral(errBoom))},
				{"an `*Error` with CodeValidation or CodeToolNotFound", errs(
					&resilience.Error{Code: resilience.CodeValidation, Message: "No such row"},
				)},
				{"an `*Error` with another code that is Retryable", errs(
					&resilience.Error{Code: "BUSY", Message: "Busy", Retryable: true},
				)},
				{"one that isn't", errs(&resilience.Error{Code: "BROKEN", Message: "Broken"})},
				{"anything else", errs(errBoom, fmt.Errorf("x: %w", errBoom))},
			}},
		} {
			fmt.Fprintf(&table, "\n### %s\n\n| | behind an adapter | in plain `Do` |\n|---|---|---|\n", section.title)
			for _, r := range section.rows {
				var seen string
				for _, err := range r.errs {
					for _, err := range []error{err, fmt.Errorf("x: %w", err)} {
						line := fmt.Sprintf("%s | %s |", faultOf(t, err, resilience.ClassNeutral), faultOf(t, err, resilience.ClassTransient))
						if seen == "" {
							seen = line
						}
						require.Equal(t, seen, line, "%s: %#v", r.name, err)
					}
				}
				fmt.Fprintf(&table, "| %s | %s\n", r.name, seen)
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

// An exitError is that of a command that has ended with this code, as an *exec.ExitError says it.
type exitError int

func (exitError) Error() string   { return "exit status" }
func (e exitError) ExitCode() int { return int(e) }
