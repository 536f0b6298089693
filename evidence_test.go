package resilience_test

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/testdata/modernc.org/sqlite"
	own "github.com/seed8d1e2389/resilience/testdata/sqlite"
	"github.com/stretchr/testify/assert"
)

// These errors have the methods of well-known libraries.
type (
	sqlError    string // of pgx and lib/pq
	awsError    int    // of the AWS SDK v2
	statusError int    // of many clients of HTTP APIs
	grpcError   uint32
	grpcStatus  uint32
	grpcCode    uint32
	worded      string
)

func (e sqlError) Error() string    { return "SQL" }
func (e sqlError) SQLState() string { return string(e) }

func (e awsError) Error() string       { return "AWS" }
func (e awsError) HTTPStatusCode() int { return int(e) }

func (e statusError) Error() string   { return "status" }
func (e statusError) StatusCode() int { return int(e) }

func (e grpcError) Error() string           { return "gRPC" }
func (e grpcError) GRPCStatus() *grpcStatus { s := grpcStatus(e); return &s }
func (s *grpcStatus) Code() grpcCode        { return grpcCode(*s) }

// saying is a status with such a text.
type saying struct {
	grpcError
	text string
}

func (e saying) Error() string { return e.text }

func (e worded) Error() string { return string(e) }

// A panickingStatus has a method like statusError's that panics.
type panickingStatus struct{}

func (panickingStatus) Error() string   { return "panics" }
func (panickingStatus) StatusCode() int { panic("no status") }

func TestTypeOfAnErrorTellsWhoseFaultItIs(t *testing.T) {
	const transient, invalid = resilience.ClassTransient, resilience.ClassInvalid
	for _, tc := range []struct {
		err      error
		class    resilience.Class
		noEffect bool
	}{
		{sqlError("08006"), transient, false},
		{sqlError("53300"), transient, false},
		{sqlError("57P01"), transient, false},
		{sqlError("58030"), transient, false},
		{sqlError("40001"), transient, true},
		{sqlError("40P01"), transient, true},
		{sqlError("40003"), transient, false}, // whether it was committed isn't known
		{sqlError("23505"), invalid, false},
		{sqlError("42601"), invalid, false},
		{sqlError("28P01"), invalid, false},
		{sqlError("00000"), transient, false},
		{sqlError(""), transient, false},

		{awsError(503), transient, false},
		{awsError(404), invalid, false},
		{statusError(500), transient, false},
		{statusError(599), transient, false},
		{statusError(429), transient, false},
		{statusError(400), invalid, false},
		{statusError(499), invalid, false},
		{statusError(501), invalid, false},
		{statusError(505), invalid, false},
		{statusError(200), transient, false},
		{statusError(0), transient, false},
		{panickingStatus{}, transient, false},

		{grpcError(14), transient, false},
		{grpcError(8), transient, false},
		{grpcError(4), transient, false},
		{grpcError(13), transient, false},
		{grpcError(3), invalid, false},
		{grpcError(5), invalid, false},
		{grpcError(16), invalid, false},
		{grpcError(2), transient, false},
		{fmt.Errorf("larger than max: %w", grpcError(8)), transient, false}, // the tool's words, not gRPC's
		{saying{8, "grpc: received message larger than max (5242880 vs. 4194304)"}, invalid, false},
		{saying{8, "gRPC message exceeds maximum size 4194304: 5242880"}, invalid, false},
		{saying{8, "Received message exceeds the maximum configured message size."}, invalid, false},
		{saying{8, "Message has exceeded the configured maximum payload size (max: 4194304, got: 5242880)"}, invalid, false},
		{saying{8, "Quota exceeded: the maximum of messages per minute"}, transient, false},
		{saying{14, "larger than max"}, transient, false},

		{os.NewSyscallError("pipe2", syscall.EMFILE), transient, false}, // of a tool that may have done something before
		{syscall.ESTALE, transient, false},
		{syscall.EBUSY, transient, false}, // of a rename, perhaps
		{os.NewSyscallError("rename", syscall.EBUSY), transient, false},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EAGAIN}, transient, true},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, invalid, false},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EEXIST}, invalid, false},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, invalid, false},
		{&fs.PathError{Op: "read", Path: "/x", Err: syscall.EISDIR}, invalid, false},
		{&fs.PathError{Op: "open", Path: "/x/y", Err: syscall.ENOTDIR}, invalid, false},
		{&fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, transient, false},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOSPC}, transient, false},
		{&fs.PathError{Op: "fork/exec", Path: "/x", Err: syscall.EAGAIN}, transient, true},
		{&fs.PathError{Op: "unlinkat", Path: "/x", Err: syscall.EBUSY}, transient, false}, // of os.RemoveAll
		{&os.LinkError{Op: "rename", Old: "/x", New: "/y", Err: syscall.EBUSY}, transient, false},
		{&os.LinkError{Op: "symlink", Old: "/x", New: "/y", Err: syscall.ESTALE}, transient, false},
		{&os.LinkError{Op: "rename", Old: "/x", New: "/y", Err: resilience.MarkTransient(errBoom)}, transient, true},
		{&fs.PathError{Op: "read", Path: "/x", Err: resilience.MarkTransient(errBoom)}, transient, true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ENOENT)}, transient, true}, // a socket
		{&net.DNSError{Err: "no such host", IsNotFound: true}, transient, true},
		{&net.OpError{Op: "proxyconnect", Net: "tcp", Err: errDial}, transient, true},
		{&net.OpError{Op: "socks connect", Net: "tcp", Err: errDial}, transient, true},
		{&net.OpError{Op: "read", Net: "tcp", Err: errDial}, transient, false},
		{driver.ErrBadConn, transient, false}, // lib/pq has returned it for an answer that broke off

		{worded("SQLITE_BUSY: database is locked"), transient, false}, // as everything of which nothing is known

		// An *Error and a mark decide, and trouble before an answer.
		{resilience.MarkPermanent(statusError(404)), resilience.ClassPermanent, false},
		{&resilience.Error{Message: "m", Retryable: true, Err: statusError(404)}, transient, false},
		{errors.Join(statusError(404), statusError(503)), transient, false},
		{errors.Join(statusError(404), errBoom), invalid, false},
		{errors.Join(statusError(404), context.DeadlineExceeded), transient, false},
		{errors.Join(fs.ErrNotExist, syscall.ECONNRESET), transient, false},
		{errors.Join(&fs.PathError{Op: "open", Err: syscall.EMFILE}, errBoom), transient, false},
		{errors.Join(&fs.PathError{Op: "open", Err: syscall.EMFILE}, syscall.ECONNREFUSED), transient, true},
	} {
		for name, err := range map[string]error{"": tc.err, "wrapped ": fmt.Errorf("x: %w", tc.err)} {
			t.Run(fmt.Sprintf("%s%T %v", name, tc.err, tc.err), func(t *testing.T) {
				assert.Equal(t, tc.class, resilience.Classify(err))

				g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
				r := resilience.Run(t.Context(), g, "x", failing(1, err))
				assert.Equal(t, map[bool]int{false: 1, true: 2}[tc.noEffect], r.Attempts)
				if !tc.noEffect {
					assert.Equal(t, tc.class != invalid, g.Health()[0].ConsecutiveFailures == 1)
				}
			})
		}
	}
}

// An agent brings these about as well as a backend. Behind an adapter they count only with evidence from the
// wire.
func TestDoubtfulLossCountsOnlyWhereEverythingDoes(t *testing.T) {
	notFound := &net.DNSError{Err: "no such host", Name: "x.invalid", IsNotFound: true}
	neutral := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	for name, tc := range map[string]struct {
		err     error
		counted bool
	}{
		"a host that doesn't exist":        {notFound, false},
		"dialing one":                      {&net.OpError{Op: "dial", Err: notFound}, false},
		"asking one":                       {&url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: notFound}}, false},
		"input that breaks off":            {fmt.Errorf("decoding: %w", io.ErrUnexpectedEOF), false},
		"a connection that is closed":      {net.ErrClosed, true},
		"a connection of a driver":         {fmt.Errorf("x: %w", driver.ErrBadConn), true},
		"an answer that breaks off":        {&url.Error{Op: "Get", Err: io.ErrUnexpectedEOF}, true},
		"a look-up that fails":             {&net.DNSError{Err: "server misbehaving", IsTemporary: true}, true},
		"a host, and a connection":         {errors.Join(notFound, syscall.ECONNRESET), true},
		"a mark":                           {resilience.MarkBackend(notFound), true},
		"an Error of the tool's own":       {resilience.ConnectionLostError("the host is gone"), true},
		"an address that can't be written": {&net.OpError{Op: "dial", Err: &net.AddrError{Err: "x"}}, false},
		"words of a driver":                {fmt.Errorf("no user named %q", "database is locked"), false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
			r := resilience.Run(t.Context(), g, "x", failing(9, tc.err), neutral)
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures == 1)
			assert.Equal(t, tc.counted, r.Err.HasGuidance())
			assert.Equal(t, tc.counted, r.Err.Code == resilience.CodeConnectionLost || name == "a mark")

			g = guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
			resilience.Run(t.Context(), g, "x", failing(9, tc.err))
			assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures, "in plain Do")
		})
	}
}

// What is known only by its type is said in words that fit, and with no guidance.
func TestRejectionByTheBackendHasNoGuidance(t *testing.T) {
	e := resilience.AsError("x", statusError(404))
	assert.Equal(t, resilience.CodeValidation, e.Code)
	assert.Equal(t, "Tool 'x' rejected the request", e.Message)
	assert.False(t, e.Retryable)
	assert.False(t, e.HasGuidance())

	assert.False(t, resilience.AsError("x", resilience.MarkInvalid(errBoom)).HasGuidance())
	assert.True(t, resilience.AsError("x", errBoom).HasGuidance())
	assert.True(t, resilience.AsError("x", statusError(503)).HasGuidance())
	own := &resilience.Error{Code: resilience.CodeValidation, Message: "No such row"}
	assert.True(t, resilience.AsError("x", own).HasGuidance(), "its author wrote it for the agent")

	g := guardWith(t, resilience.Tool{})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	r := resilience.Run(canceled, g, "x", succeed)
	assert.False(t, r.Err.HasGuidance(), "the caller has left")
	r = resilience.Run(t.Context(), g, "x", failing(1, statusError(404)), resilience.Debug())
	assert.True(t, r.Err.HasGuidance(), "the details are asked for")
}

// Errors whose methods only have the names of those that tell something.
type (
	statusAndError struct{ error }
	statusOf       struct{ error }
	statusOfAny    struct{ error }
	deadlineLike   struct{}
	otherCode      int
	wideStatus     uint64
)

func (statusAndError) GRPCStatus() (*grpcStatus, error) { s := grpcStatus(14); return &s, nil }
func (statusOf) GRPCStatus(code int) *grpcStatus        { s := grpcStatus(code); return &s }
func (statusOfAny) GRPCStatus(...int) *grpcStatus       { s := grpcStatus(14); return &s }

func (deadlineLike) Error() string        { return "too late" }
func (deadlineLike) Is(target error) bool { return target == context.DeadlineExceeded }

func (wideStatus) Error() string            { return "no error of gRPC" }
func (w wideStatus) GRPCStatus() wideStatus { return w }
func (w wideStatus) Code() uint64           { return uint64(w) }

func (otherCode) Error() string { return "no error of SQLite" }
func (c otherCode) Code() int   { return int(c) }

// A killedError is that of a command that was killed, as an *exec.ExitError says it: perhaps one that an agent chose.
type killedError struct{}

func (killedError) Error() string { return "signal: killed" }
func (killedError) ExitCode() int { return -1 }

// A foreignNetError has the methods of a net.Error, as kafka-go's has for whatever its broker answers. It says whether it
// is a timeout.
type foreignNetError bool

func (foreignNetError) Error() string   { return "foreign" }
func (e foreignNetError) Timeout() bool { return bool(e) }
func (foreignNetError) Temporary() bool { return false }

// An aroundLike is like fs.ErrNotExist only because it wraps more.
type aroundLike struct{ error }

func (e aroundLike) Unwrap() error      { return e.error }
func (aroundLike) Is(target error) bool { return target == fs.ErrNotExist }

// A panickingIs and a panickingAs say nothing of their own.
type (
	panickingIs struct{ error }
	panickingAs struct{ error }
)

func (e panickingIs) Unwrap() error { return e.error }
func (panickingIs) Is(error) bool   { panic("no answer") }
func (e panickingAs) Unwrap() error { return e.error }
func (panickingAs) As(any) bool     { panic("no answer") }

// judged returns what the guard of an adapter makes of an error of which nothing else is known.
func judged(t *testing.T, err error) string {
	t.Helper()
	g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
	neutral := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	r := resilience.Run(t.Context(), g, "x", failing(9, err), neutral)
	return judgment(g, r.Err)
}

// judgment returns what a guard has made of the error of its only call.
func judgment(g *resilience.Guard, e *resilience.Error) string {
	switch {
	case g.Health()[0].ConsecutiveFailures == 1:
		return "trouble"
	case e.Code == resilience.CodeValidation:
		return "rejected"
	}
	return "nothing"
}

func TestCodeOfAnErrorTellsWhoseFaultItIs(t *testing.T) {
	for want, errs := range map[string][]error{
		"trouble": {
			sqlError("08000"), sqlError("40001"), sqlError("40002"), sqlError("40P01"), sqlError("53300"),
			sqlError("57P01"), sqlError("58030"),
			statusError(429), statusError(500), statusError(502), statusError(503), statusError(504), statusError(506),
			grpcError(4), grpcError(8), grpcError(13), grpcError(14), grpcError(15),
			saying{13, "desc = unexpected HTTP status code received from server: 500 (Internal Server Error)"},
			sqlite.Method(5), sqlite.Method(6), sqlite.Method(5 | 1<<8), sqlite.Small(5), sqlite.Small(6),
			sqlite.Field{Code: 5}, &sqlite.Field{Code: 6},
			errors.Join(statusError(404), errBoom, statusError(503)),
			sqlite.NewStruct(5), sqlite.NewStruct(6), sqlite.NewHidden(5), sqlite.NewHidden(6), syscall.EMFILE, syscall.EAGAIN,
			errors.Join(syscall.ECONNRESET, fs.ErrNotExist), errors.Join(fs.ErrNotExist, syscall.ECONNRESET),
			&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)},
			&net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)},
			&net.OpError{Op: "write", Net: "tcp", Err: errBoom},
			&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, foreignNetError(true),
		},
		"rejected": {
			sqlError("22P02"), sqlError("23505"), sqlError("42601"), sqlError("28P01"),
			statusError(400), statusError(404), statusError(428), statusError(430), statusError(499), statusError(501),
			statusError(505), sqlError("58P01"), sqlError("58P02"),
			grpcError(3), grpcError(5), grpcError(6), grpcError(7), grpcError(9), grpcError(10), grpcError(11), grpcError(12), grpcError(16),
			saying{13, "desc = unexpected HTTP status code received from server: 400 (Bad Request)"},
			panickingIs{statusError(404)}, panickingAs{statusError(404)},
			errors.Join(errBoom, statusError(404)), errors.Join(statusError(404), errBoom),
		},
		"nothing": {
			sqlError("00000"), sqlError("01000"), sqlError("02000"), sqlError("0800"), sqlError("080000"), sqlError(""),
			sqlError("08P01"), sqlError("53400"), sqlError("55P03"), sqlError("57014"),
			statusError(0), statusError(200), statusError(302), statusError(399),
			grpcError(0), grpcError(1), grpcError(2), grpcError(17), errBoom,
			statusAndError{errBoom}, statusOf{errBoom}, statusOfAny{errBoom}, aroundLike{errBoom},
			saying{13, "grpc: error while marshaling: no message"}, saying{13, "desc = header key \"é\" is wrong"},
			saying{13, "desc = there is an empty key in the header"},
			saying{13, "grpc: Compressor is not installed for \"x\""},
			saying{13, "desc = header list size to send violates the maximum size (8192 bytes) set by server"},
			saying{13, "desc = transport: per-RPC creds failed due to error: oauth2: \"invalid_grant\""},
			saying{13, "desc = transport: received per-RPC creds error with illegal status: no"},
			sqlite.Method(0), sqlite.Method(1), sqlite.Method(4), sqlite.Method(7), sqlite.Method(1 << 8),
			sqlite.Small(4), sqlite.Field{Code: 1}, sqlite.Text("5"), sqlite.Bare{}, sqlite.NewStruct(1), sqlite.NewHidden(1), otherCode(5),
			own.Error{Code: 5}, &own.Error{Code: 6},
			wideStatus(14), foreignNetError(false), killedError{}, syscall.EBUSY,
			&fs.PathError{Op: "remove", Path: "/proc", Err: syscall.EBUSY},
			&net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)},
			&net.OpError{Op: "listen", Net: "tcp", Err: errBoom},
			&net.OpError{Op: "write", Net: "udp", Err: os.NewSyscallError("write", syscall.EMSGSIZE)},
			&net.OpError{Op: "write", Net: "udp", Err: syscall.EMSGSIZE},
			&url.Error{Op: "parse", Err: io.EOF}, &http.MaxBytesError{Limit: 1},
			&net.ParseError{Type: "IP address", Text: "x"}, &net.AddrError{Err: "x"},
			&net.OpError{Op: "dial", Err: net.UnknownNetworkError("x")}, net.UnknownNetworkError("x"),
			&fs.PathError{Op: "read", Path: "|0", Err: os.ErrDeadlineExceeded}, // of a pipe
			&fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE},         // the other program has ended
			&net.OpError{Op: "remote error", Err: tls.AlertError(116)},         // certificate required
			&net.OpError{Op: "route", Net: "ip+net", Err: errBoom}, &net.DNSError{Err: "unrecognized address"},
			&net.OpError{Op: "dial", Net: "tcp6", Err: os.NewSyscallError("connect", syscall.EINVAL)},
		},
	} {
		for _, err := range errs {
			assert.Equal(t, want, judged(t, err), "%T %v", err, err)
		}
	}
}

// A tool whose own error says nothing has failed as its backend has.
func TestTroubleOfABackendDecidesWhetherToTryAgain(t *testing.T) {
	for want, reported := range map[int]error{
		1: resilience.MarkPermanent(errBoom),
		4: resilience.MarkTransient(errBoom),
	} {
		runInBubble(t, reported.Error(), func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				resilience.ReportBackend(ctx, reported)
				return 0, errors.New("the stock can't be read")
			})
			assert.Equal(t, want, r.Attempts)
		})
	}
}

// What a tool's error tells may have happened after what was reported: trouble counts, and a mistake that the backend
// has named stays one though its answer broke off.
func TestErrorAfterAReportOfItsBackend(t *testing.T) {
	for _, tc := range []struct {
		reported, err error
		want          string
	}{
		{statusError(404), context.DeadlineExceeded, "trouble"},
		{statusError(404), deadlineLike{}, "trouble"},
		{statusError(404), statusError(503), "trouble"},
		{statusError(404), io.ErrUnexpectedEOF, "rejected"},
		{nil, io.ErrUnexpectedEOF, "nothing"}, // a document may have been stored in part
		{nil, syscall.ECONNRESET, "trouble"},
		{nil, statusError(404), "rejected"},
	} {
		g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
		r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, tc.reported)
			return 0, tc.err
		})
		assert.Equal(t, tc.want, judgment(g, r.Err), "%v after %v", tc.err, tc.reported)
	}
}

// Of more errors than a walk looks at, it says nothing.
func TestAsManyErrorsAreReadAsTheBoundAllows(t *testing.T) {
	for n, want := range map[int]string{9_999: "rejected", 10_000: "nothing"} { // with the one that joins them
		several := make([]error, n)
		for i := range several {
			several[i] = errBoom
		}
		several[n-1] = statusError(404)
		assert.Equal(t, want, judged(t, errors.Join(several...)), "%d", n)
	}
}

func TestReasonOfALossByItsErrno(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.ECONNREFUSED: "connection refused",
		syscall.ECONNRESET:   "connection reset by the other side",
		syscall.ECONNABORTED: "connection aborted",
		syscall.EPIPE:        "connection closed by the other side",
		syscall.ETIMEDOUT:    "network timeout",
		syscall.EHOSTUNREACH: "host unreachable",
		syscall.ENETUNREACH:  "network unreachable",
	} {
		assert.Equal(t, "Connection lost: "+want, resilience.AsError("x", errno).Message)
	}
}

func TestOperationsThatPassDidNothing(t *testing.T) {
	for _, errno := range []syscall.Errno{
		syscall.EAGAIN, syscall.EBUSY, syscall.EINTR, syscall.EMFILE, syscall.ENFILE, syscall.ESTALE,
	} {
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		r := resilience.Run(t.Context(), g, "x", failing(1, &fs.PathError{Op: "open", Err: errno}))
		assert.Nil(t, r.Err, errno.Error())
		assert.Equal(t, 2, r.Attempts, errno.Error())
	}
}
