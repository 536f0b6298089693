package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlyAllowedOptionsOfARequestApply(t *testing.T) {
	allowDebug := []gosdk.Option{gosdk.AllowDebug()}
	allowTimeout := []gosdk.Option{gosdk.AllowTimeout()}
	debug := func(v any) mcp.Meta { return mcp.Meta{resilience.MetaDebug: v} }
	timeout := func(v any) mcp.Meta { return mcp.Meta{resilience.MetaTimeout: v} }
	both := mcp.Meta{resilience.MetaDebug: true, resilience.MetaTimeout: 0.001}

	for name, tc := range map[string]struct {
		opts    []gosdk.Option
		meta    mcp.Meta
		code    resilience.Code
		details bool
	}{
		"not allowed":        {nil, both, resilience.CodeToolFailed, false},
		"debug":              {allowDebug, debug(true), resilience.CodeToolFailed, true},
		"debug of text":      {allowDebug, debug("yes"), resilience.CodeValidation, false},
		"timeout":            {allowTimeout, timeout(0.001), resilience.CodeTimeout, false},
		"too long a timeout": {allowTimeout, timeout(1e9), resilience.CodeToolFailed, false},
		"timeout of text":    {allowTimeout, timeout("soon"), resilience.CodeValidation, false},
		"zero timeout":       {allowTimeout, timeout(0), resilience.CodeValidation, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newProtected(t, resilience.Config{}, tc.opts...)
			f.raw("raw", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if d, _ := ctx.Deadline(); time.Until(d) < 30*time.Second {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return failedResult("no"), nil
			})
			f.connect("")

			res := f.call("raw", tc.meta)
			m := metadataOf(t, res)
			assert.Equal(t, tc.code, m.Code)
			assert.Equal(t, tc.details, m.Details != nil)
			if tc.details {
				assert.Equal(t, map[string]any{"n": 1.0}, m.Details["arguments"])
				assert.JSONEq(t, jsonOf(t, res.Meta[resilience.MetaError]), guidanceOf(t, res))
			}
		})
	}
}

// One broken data source shuts the tool for no other, and neither does a key function that panics.
func TestBreakerKeyGivesEachBackendItsOwnBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{}, gosdk.BreakerKey(nil), gosdk.BreakerKey(
			func(_ context.Context, req mcp.Request) string {
				var args struct{ Source *string }
				_ = json.Unmarshal(req.(*mcp.CallToolRequest).Params.Arguments, &args)
				return *args.Source
			}), gosdk.BreakerKey(nil))
		f.raw("query", nil, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if strings.Contains(string(req.Params.Arguments), "broken") {
				return nil, errBoom
			}
			return textResult("fine"), nil
		})
		f.connect(latest)
		call := func(args map[string]any) (*mcp.CallToolResult, error) {
			return f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "query", Arguments: args})
		}

		for range 5 {
			_, err := call(map[string]any{"source": "broken"})
			require.ErrorContains(t, err, "boom")
		}
		res, err := call(map[string]any{"source": "broken"})
		require.NoError(t, err)
		assert.Contains(t, metadataOf(t, res).Message, "For 'broken': Circuit breaker open")
		assert.Equal(t, "CIRCUIT_OPEN: for 'broken', the last calls failed. Do not make this call for 30 seconds; "+
			"calls of this tool for others may succeed.", text(t, res))
		for _, args := range []map[string]any{{"source": "fine"}, {}} {
			res, err := call(args)
			require.NoError(t, err)
			assert.Equal(t, "fine", text(t, res), args)
		}
	})
}

func TestHiddenErrorsAreTheGuards(t *testing.T) {
	notFound := &jsonrpc.Error{Code: -32050, Message: "no such row", Data: []byte(`"/etc/app.conf"`)}
	var row struct {
		N int `json:"n"`
	}
	unreadable := json.Unmarshal([]byte(`{"n":"secret"}`), &row)
	var ended resilience.CallEnd
	f := newProtected(t, resilience.Config{Observers: []resilience.Observer{{
		End: func(_ context.Context, e resilience.CallEnd) { ended = e },
	}}}, gosdk.HideErrors())
	f.typed("typed", nil, func(context.Context) error { return errBoom })
	f.typed("unreadable", nil, func(context.Context) error { return resilience.MarkBackend(unreadable) })
	f.typed("unreadable answer", nil, func(context.Context) error { return unreadable })
	f.raw("error", nil, returns(nil, errBoom))
	f.raw("result", nil, returns(errorTextResult("no such row"), nil))
	f.raw("protocol", nil, returns(nil, &jsonrpc.Error{Code: -32050, Message: "Log in first", Data: []byte(`"url"`)}))
	f.raw("wrapped", nil, returns(nil, fmt.Errorf("read /etc/app.conf: %w", errors.Join(errBoom, notFound))))
	f.connect("")

	own := f.protocolError("protocol")
	assert.Equal(t, "Log in first", own.Message)
	assert.Equal(t, `"url"`, string(own.Data))
	assert.EqualValues(t, jsonrpc.CodeInvalidParams, f.protocolError("no such tool").Code)
	assert.Equal(t, "no such row", text(t, f.call("result")), "which no Go error stands behind")

	for _, tool := range []string{"typed", "unreadable", "error"} {
		res := f.call(tool)
		assert.Equal(t, resilience.CodeToolFailed, metadataOf(t, res).Code)
		assert.Len(t, res.Content, 1)
		assert.NotContains(t, jsonOf(t, res), "boom")
		assert.NotContains(t, jsonOf(t, res), "unmarshal")
	}
	require.NoError(t, f.guard.Flush(t.Context()))
	assert.ErrorIs(t, ended.Err, errBoom, "observers receive what clients don't")

	assert.NotContains(t, jsonOf(t, f.call("unreadable answer")), "unmarshal")
	wrapped := f.protocolError("wrapped")
	assert.Equal(t, "no such row", wrapped.Message)
	assert.EqualValues(t, -32050, wrapped.Code)
	assert.NotContains(t, string(wrapped.Data), "app.conf")
}

// What a Failure function takes for no failure is still one for the client.
func TestHideErrorsOfWhatIsNoFailure(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		f := newProtected(t, resilience.Config{}, gosdk.HideErrors(),
			gosdk.Failure(func(context.Context, mcp.Request, *mcp.CallToolResult) error { return nil }))
		f.typed("x", readOnly, func(context.Context) error { return errors.New("no rows at 10.0.0.7") })
		f.connect(protocol)
		res := f.call("x")
		assert.True(t, res.IsError)
		require.Len(t, res.Content, 1)
		assert.Contains(t, text(t, res), "TOOL_FAILED")
		assert.NotContains(t, text(t, res), "10.0.0.7")
		assert.Zero(t, f.guard.Breaker("x").Failures())
	})
}

// Whose own words are hidden, or can't be sent, gets the guard's: they don't recommend a second write.
func TestGuardsWordsAfterAWriteOfWhichNothingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("ledger: no reply to COMMIT")
		write := resilience.Tool{Effect: resilience.NonIdempotent}
		f := newProtected(t, resilience.Config{
			Tools: map[string]resilience.Tool{"typed": write, "raw": write, "NaN": write},
		}, gosdk.HideErrors())
		f.typed("typed", nil, func(context.Context) error { return lost })
		f.raw("raw", nil, returns(nil, lost))
		f.raw("NaN", nil, returns(&mcp.CallToolResult{StructuredContent: math.NaN()}, nil))
		f.connect(latest)
		for _, tool := range []string{"typed", "raw", "NaN"} {
			assert.Equal(t, "TOOL_FAILED: failed. It may have taken effect: check before you call it again.",
				text(t, f.call(tool)), tool)
		}
	})
}

// readyFailures are the FailureFuncs of the package.
var readyFailures = map[string]gosdk.FailureFunc{
	"known": gosdk.CountKnown, "all": gosdk.CountAll, "errors": gosdk.CountErrors, "none": gosdk.CountNone,
}

// What a tool's author says stands, whatever counts.
func TestAuthorsErrorStandsWhateverCounts(t *testing.T) {
	own := &resilience.Error{
		Code: "BUSY", Message: "The queue is full", Suggestion: "Call again in 20 seconds.",
		Retryable: true, RetryAfter: 20 * time.Second, Err: io.ErrShortWrite,
	}
	for count, failure := range readyFailures {
		for _, opts := range [][]gosdk.Option{nil, {gosdk.HideErrors()}} {
			f := newProtected(t, resilience.Config{}, append(opts, gosdk.Failure(failure))...)
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
