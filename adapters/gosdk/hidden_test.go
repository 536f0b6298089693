package gosdk_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readyFailures are the FailureFuncs of the package.
var readyFailures = map[string]gosdk.FailureFunc{
	"known": gosdk.CountKnown, "all": gosdk.CountAll, "errors": gosdk.CountErrors, "none": gosdk.CountNone,
}

// A statusError is what a client of a backend in HTTP returns.
type statusError int

func (statusError) Error() string     { return "no luck at 10.0.0.7" }
func (s statusError) StatusCode() int { return int(s) }

// Whatever counts, an agent reads what has happened, and no word of ours recommends to repeat a write blindly.
func TestHiddenErrorReadsAsWhatHasHappened(t *testing.T) {
	const check = "The outcome of this call is unknown: check whether it took effect before you call this tool again."
	const caution = " If this tool changes anything, check first whether this call took effect."
	const again = "Try again. If it fails again, change the request or use another tool."
	const change = "Do not repeat the same call: change the request or use another tool."
	const correct = "Correct the arguments, then call again."
	const wait = "Wait for the connection to come back, then try again."
	unknown := errors.New("no reply to COMMIT from 10.0.0.7")
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	const lost, failed, invalid = resilience.CodeConnectionLost, resilience.CodeToolFailed, resilience.CodeValidation

	for name, tc := range map[string]struct {
		err     error
		effect  resilience.Effect
		code    resilience.Code
		says    string
		neutral string // what CountKnown and CountNone say, if that is something else
	}{
		"unknown, of a read":    {unknown, resilience.ReadOnly, failed, again, change},
		"unknown, of a write":   {unknown, resilience.NonIdempotent, failed, check, ""},
		"unknown, of either":    {unknown, resilience.EffectUnknown, failed, again + caution, change + caution},
		"outage, of a read":     {statusError(503), resilience.ReadOnly, failed, again, ""},
		"outage, of a write":    {statusError(503), resilience.NonIdempotent, failed, check, ""},
		"outage, of either":     {statusError(503), resilience.EffectUnknown, failed, again + caution, ""},
		"reset, of a read":      {reset, resilience.ReadOnly, lost, wait, ""},
		"reset, of a write":     {reset, resilience.NonIdempotent, lost, check, ""},
		"rejected, of a write":  {statusError(404), resilience.NonIdempotent, invalid, change, ""},
		"a mistake, of a write": {resilience.MarkInvalid(unknown), resilience.NonIdempotent, invalid, correct, ""},
		"hopeless, of a read":   {resilience.MarkPermanent(statusError(503)), resilience.ReadOnly, failed, change, ""},
	} {
		for count, failure := range readyFailures {
			t.Run(name+", "+count, func(t *testing.T) {
				f := newProtected(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Effect: tc.effect}},
					Retry: resilience.Retry{MaxRetries: -1, Backoff: fast.Backoff},
				}, gosdk.HideErrors(), gosdk.Failure(failure))
				f.typed("x", nil, func(context.Context) error { return tc.err })
				f.connect("")
				res := f.call("x")
				require.True(t, res.IsError)
				want := tc.says
				if count == "known" || count == "none" {
					want = cmp.Or(tc.neutral, tc.says)
				}
				m := metadataOf(t, res)
				assert.Equal(t, tc.code, m.Code)
				assert.Equal(t, want, m.Suggestion)
				assert.Equal(t, slices.Contains([]string{again, again + caution, wait}, want), m.Retryable)
				assert.NotContains(t, jsonOf(t, res), "10.0.0.7")
			})
		}
	}
}

// What a tool's author says stands, whatever counts.
func TestAuthorsErrorStandsWhateverCounts(t *testing.T) {
	own := &resilience.Error{
		Code: "BUSY", Message: "The queue is full", Suggestion: "Call again in 20 seconds.",
		Retryable: true, RetryAfter: 20 * time.Second, Err: io.ErrShortWrite,
	}
	for _, count := range slices.Sorted(maps.Keys(readyFailures)) {
		for _, opts := range [][]gosdk.Option{nil, {gosdk.HideErrors()}} {
			f := newProtected(t, resilience.Config{}, append(opts, gosdk.Failure(readyFailures[count]))...)
			result := &mcp.CallToolResult{}
			result.SetError(own)
			f.typed("typed", readOnly, func(context.Context) error { return own })
			f.raw("result", readOnly, returns(result, nil))
			f.connect("")
			for _, tool := range []string{"typed", "result"} {
				m := metadataOf(t, f.call(tool))
				assert.True(t, m.Retryable, count)
				assert.Equal(t, 20, m.RetryAfter, count)
				assert.Equal(t, own.Suggestion, m.Suggestion, count)
			}
		}
	}
}
