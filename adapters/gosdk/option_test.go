package gosdk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFailureDecidesWhatCounts(t *testing.T) {
	failure := gosdk.Failure(func(res *mcp.CallToolResult) error {
		switch err := res.GetError(); {
		case err != nil:
			return err
		case res.Content[0].(*mcp.TextContent).Text == "empty":
			return nil
		default:
			return resilience.MarkInvalid(errors.New("the agent's mistake"))
		}
	})
	f := newProtected(t, resilience.Config{}, nil, failure, gosdk.Failure(nil))
	f.raw("mistake", readOnly, returns(errorTextResult("mistake"), nil))
	f.raw("answer", readOnly, returns(errorTextResult("empty"), nil))
	f.raw("nothing", readOnly, returns(nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}))
	f.typed("own", nil, func(context.Context) error {
		return &resilience.Error{Code: resilience.CodeValidation, Message: "m"}
	})
	f.connect("")

	for range 10 {
		assert.Equal(t, resilience.CodeValidation, metadataOf(t, f.call("mistake")).Code)
		assert.NotContains(t, f.call("answer").Meta, resilience.MetaError)
		assert.Equal(t, resilience.CodeValidation, metadataOf(t, f.call("own")).Code)
		f.protocolError("nothing")
	}
	for _, h := range f.guard.Health() {
		assert.Equal(t, resilience.StateClosed, h.State, h.Tool)
		assert.Zero(t, h.ConsecutiveFailures, h.Tool)
	}
}

func TestArgumentsThatTheSDKRejectsDoNotCount(t *testing.T) {
	f := newProtected(t, resilience.Config{})
	f.typed("typed", readOnly, func(context.Context) error { t.Error("called"); return nil })
	f.connect("")
	params := &mcp.CallToolParams{Name: "typed", Arguments: map[string]any{"n": "many"}}
	for range 10 {
		res, err := f.session.CallTool(t.Context(), params)
		require.NoError(t, err)
		assert.Contains(t, text(t, res), `validating "arguments"`)
		assert.Equal(t, resilience.CodeValidation, metadataOf(t, res).Code)
	}
	assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
}

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
				return errorTextResult("no"), nil
			})
			f.connect("")

			m := metadataOf(t, f.call("raw", tc.meta))
			assert.Equal(t, tc.code, m.Code)
			assert.Equal(t, tc.details, m.Details != nil)
			if tc.details {
				assert.Equal(t, map[string]any{"n": 1.0}, m.Details["arguments"])
			}
		})
	}
}
