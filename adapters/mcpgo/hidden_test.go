package mcpgo_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readyFailures are the FailureFuncs of the package.
var readyFailures = map[string]mcpgo.FailureFunc{
	"known": mcpgo.CountKnown, "all": mcpgo.CountAll, "errors": mcpgo.CountErrors, "none": mcpgo.CountNone,
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
				g := newGuard(t, onlyX(resilience.Tool{Effect: tc.effect, Retry: &resilience.Retry{MaxRetries: -1}}))
				res, err := mcpgo.Middleware(g, mcpgo.HideErrors(), mcpgo.Failure(failure))(
					returns(failedResult(tc.err), nil))(t.Context(), request("x", nil, nil))
				require.NoError(t, err)
				require.True(t, res.IsError)
				want := tc.says
				if count == "known" || count == "none" {
					want = cmp.Or(tc.neutral, tc.says)
				}
				m := errorIn(t, res)
				assert.Equal(t, tc.code, m.Code)
				assert.Equal(t, want, m.Suggestion)
				assert.Equal(t, slices.Contains([]string{again, again + caution, wait}, want), m.Retryable)
				assert.NotContains(t, text(t, res), "10.0.0.7")
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
	for count, failure := range readyFailures {
		for _, opts := range [][]mcpgo.Option{nil, {mcpgo.HideErrors()}} {
			for name, handler := range map[string]server.ToolHandlerFunc{
				"an error": returns(nil, own), "SetError": returns(failedResult(own), nil),
			} {
				g := newGuard(t, onlyX(resilience.Tool{Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1}}))
				middleware := mcpgo.Middleware(g, append(opts, mcpgo.Failure(failure))...)
				res, err := middleware(handler)(t.Context(), request("x", nil, nil))
				require.NoError(t, err)
				var e resilience.Error
				text := res.Content[len(res.Content)-1].(mcp.TextContent).Text
				require.NoError(t, json.Unmarshal([]byte(text), &e))
				assert.True(t, e.Retryable, count, name)
				assert.Equal(t, own.RetryAfter, e.RetryAfter, count, name)
				assert.Equal(t, own.Suggestion, e.Suggestion, count, name)
			}
		}
	}
}
