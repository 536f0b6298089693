package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
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

func TestFailureDecidesWhatCounts(t *testing.T) {
	failure := gosdk.Failure(func(_ context.Context, _ mcp.Request, res *mcp.CallToolResult) error {
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
		assert.NotContains(t, f.call("mistake").Meta, resilience.MetaError)
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
		assert.NotContains(t, res.Meta, resilience.MetaError)
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
				return failedResult("no"), nil
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

// What a tool says of its failure reaches the client, but for secrets.
func TestSecretsInTheTextOfAFailureAreReplaced(t *testing.T) {
	const secret = "postgres://app:hunter2@db.internal:5432/app: password authentication failed"
	const want = "postgres://[REDACTED]@db.internal:5432/app: password authentication failed"
	shared := errorTextResult(secret)
	f := newProtected(t, resilience.Config{})
	f.typed("typed", nil, func(context.Context) error { return errors.New(secret) })
	f.raw("result", nil, returns(shared, nil))
	f.raw("error", nil, returns(nil, errors.New(secret)))
	f.raw("plain", nil, returns(nil, errors.New("no such row")))
	f.raw("protocol", nil, returns(nil, &jsonrpc.Error{Code: -32050, Message: secret, Data: []byte(`"mine"`)}))
	f.raw("wrapped", nil, returns(nil, fmt.Errorf("%s: %w", secret, &jsonrpc.Error{Code: -32050, Message: "no"})))
	f.raw("success", nil, returns(textResult(secret), nil))
	f.connect("")

	assert.Equal(t, want, text(t, f.call("typed")))
	assert.Equal(t, want, text(t, f.call("result")))
	assert.Equal(t, secret, text(t, shared), "the tool's own result is never changed")
	assert.Equal(t, want, f.protocolError("error").Message)
	assert.Equal(t, f.protocolError("plain").Code, f.protocolError("error").Code)
	wire := f.protocolError("protocol")
	assert.Equal(t, want, wire.Message)
	assert.EqualValues(t, -32050, wire.Code)
	assert.Equal(t, `"mine"`, string(wire.Data))
	wire = f.protocolError("wrapped")
	assert.Equal(t, want+": no", wire.Message)
	assert.EqualValues(t, -32050, wire.Code)
	assert.Equal(t, secret, text(t, f.call("success")), "what isn't a failure is the tool's affair")
}

// The time that it takes to look for secrets isn't the tool's, and is no reason to shut it.
func TestLongTextOfAFailureUsesUpNoTimeout(t *testing.T) {
	long := strings.Repeat(":key", 1<<18)
	cfg := resilience.Config{
		Timeouts: resilience.Timeouts{resilience.Quick: 500 * time.Millisecond},
		Breaker:  resilience.BreakerConfig{Failures: 1},
	}
	f := newProtected(t, cfg)
	f.typed("result", nil, func(context.Context) error { return errors.New(long) })
	f.raw("error", nil, returns(nil, errors.New(long)))
	f.connect("")
	assert.NotContains(t, f.call("result").Meta, resilience.MetaError)
	assert.Empty(t, f.protocolError("error").Data)
	for _, h := range f.guard.Health() {
		assert.Equal(t, resilience.StateClosed, h.State, h.Tool)
	}

	g := newGuard(t, cfg)
	call := gosdk.ClientMiddleware(g)(func(context.Context, string, mcp.Request) (mcp.Result, error) {
		return errorTextResult(long), nil
	})
	_, err := call(t.Context(), "tools/call", &mcp.ClientRequest[mcp.Params]{Params: &mcp.CallToolParams{Name: "x"}})
	require.NoError(t, err)
	assert.Equal(t, resilience.StateClosed, g.Health()[0].State)
}

func TestHiddenErrorsAreTheGuards(t *testing.T) {
	notFound := &jsonrpc.Error{Code: -32050, Message: "no such row", Data: []byte(`"/etc/app.conf"`)}
	var row struct {
		N int `json:"n"`
	}
	unreadable := json.Unmarshal([]byte(`{"n":"secret"}`), &row)
	f := newProtected(t, resilience.Config{}, gosdk.HideErrors())
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
	assert.NotContains(t, jsonOf(t, f.call("unreadable answer")), "unmarshal")
	wrapped := f.protocolError("wrapped")
	assert.Equal(t, "no such row", wrapped.Message)
	assert.EqualValues(t, -32050, wrapped.Code)
	assert.NotContains(t, string(wrapped.Data), "app.conf")
}

func TestReadyChoicesOfFailure(t *testing.T) {
	unknown := errors.New("something went wrong")
	for name, tc := range map[string]struct {
		f       gosdk.FailureFunc
		counted map[string]bool
	}{
		"known":  {gosdk.CountKnown, map[string]bool{"backend's": true}},
		"all":    {gosdk.CountAll, map[string]bool{"backend's": true, "unknown": true, "result": true}},
		"errors": {gosdk.CountErrors, map[string]bool{"backend's": true, "unknown": true}},
		"none":   {gosdk.CountNone, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newProtected(t, resilience.Config{}, gosdk.Failure(tc.f))
			f.typed("backend's", nil, func(context.Context) error { return errBoom })
			f.typed("unknown", nil, func(context.Context) error { return unknown })
			f.typed("caller's", nil, func(context.Context) error { return os.ErrNotExist })
			f.raw("result", nil, returns(errorTextResult("no"), nil))
			f.connect("")
			for _, tool := range []string{"backend's", "unknown", "caller's", "result"} {
				f.call(tool)
			}
			for _, h := range f.guard.Health() {
				assert.Equal(t, tc.counted[h.Tool], h.ConsecutiveFailures == 1, h.Tool)
			}
		})
	}
}

// One broken data source shuts the tool for no other, and neither does a key function that panics.
func TestBreakerKeyGivesEachBackendItsOwnBreaker(t *testing.T) {
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
		return &mcp.CallToolResult{}, nil
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
	assert.Contains(t, text(t, res), "For 'broken': Circuit breaker open")
	for _, args := range []map[string]any{{"source": "fine"}, {}} {
		res, err := call(args)
		require.NoError(t, err)
		assert.False(t, res.IsError, args)
	}
}

func TestMeaningOfAResult(t *testing.T) {
	const invalid, transient = resilience.ClassInvalid, resilience.ClassTransient
	const nothing = "the tool returned a result with isError"
	image := &mcp.ImageContent{MIMEType: "image/png"}
	words := func(texts ...string) *mcp.CallToolResult {
		res := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{image, (*mcp.TextContent)(nil)}}
		for _, text := range texts {
			res.Content = append(res.Content, &mcp.TextContent{Text: text})
		}
		return res
	}
	set := func(err error) *mcp.CallToolResult {
		res := words("no luck")
		res.SetError(err)
		return res
	}
	long := strings.Repeat("x", 1024)

	for name, tc := range map[string]struct {
		failure gosdk.FailureFunc
		result  *mcp.CallToolResult
		class   resilience.Class
		text    string
	}{
		"known, its texts":       {gosdk.CountKnown, words("no", "luck"), transient, "no\nluck"},
		"known, nothing to read": {gosdk.CountKnown, words(), transient, nothing},
		"known, an empty text":   {gosdk.CountKnown, words(""), transient, nothing},
		"known, a long text":     {gosdk.CountKnown, words(long), transient, long},
		"known, a longer text":   {gosdk.CountKnown, words(long + "y"), transient, long + "…"},
		"known, cut in a letter": {gosdk.CountKnown, words(long[1:] + "ä"), transient, long[1:] + "…"},
		"known, SetError":        {gosdk.CountKnown, set(os.ErrNotExist), invalid, os.ErrNotExist.Error()},
		"all, its text":          {gosdk.CountAll, words("no luck"), transient, "no luck"},
		"all, SetError":          {gosdk.CountAll, set(os.ErrNotExist), invalid, os.ErrNotExist.Error()},
		"all, SetError, unknown": {gosdk.CountAll, set(io.ErrShortWrite), transient, io.ErrShortWrite.Error()},
		"errors, its text":       {gosdk.CountErrors, words("no luck"), resilience.ClassNeutral, "no luck"},
		"errors, SetError":       {gosdk.CountErrors, set(errBoom), transient, errBoom.Error()},
		"none, its text":         {gosdk.CountNone, words("no luck"), resilience.ClassNeutral, "no luck"},
		"none, SetError":         {gosdk.CountNone, set(errBoom), resilience.ClassNeutral, errBoom.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.failure(t.Context(), &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x"}}, tc.result)
			assert.EqualError(t, err, tc.text)
			assert.Equal(t, tc.class, resilience.Classify(err))
		})
	}
}

// Other middleware may return any result, and a program ask what it means.
func TestResultWithNothingInIt(t *testing.T) {
	nothing := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{nil}}
	res, err := gosdk.Middleware(newGuard(t, resilience.Config{}))(
		func(context.Context, string, mcp.Request) (mcp.Result, error) { return nothing, nil },
	)(t.Context(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x"}})
	require.NoError(t, err)
	assert.Same(t, nothing, res)

	mismatch := &json.UnmarshalTypeError{Field: "n", Type: reflect.TypeFor[int]()}
	nothing.SetError(mismatch)
	nothing.Content = append(nothing.Content, (*mcp.TextContent)(nil))
	assert.Same(t, mismatch, gosdk.CountKnown(t.Context(), &mcp.CallToolRequest{}, nothing))
}

func TestScrubbedResultKeepsAllElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{})
		f.raw("x", nil, returns(&mcp.CallToolResult{
			IsError: true, StructuredContent: map[string]any{"own": true}, Meta: mcp.Meta{"example.com/own": "kept"},
			Content: []mcp.Content{
				&mcp.TextContent{Text: "password=hunter2", Meta: mcp.Meta{"example.com/text": "kept"}},
				&mcp.ImageContent{MIMEType: "image/png", Data: []byte("p")},
				&mcp.TextContent{Text: "fine"}, &mcp.TextContent{Text: "token=abc123"},
			},
		}, nil))
		f.connect("")

		res := f.call("x")
		assert.True(t, res.IsError)
		assert.Equal(t, map[string]any{"own": true}, res.StructuredContent)
		assert.Equal(t, "kept", res.Meta["example.com/own"])
		require.Len(t, res.Content, 4)
		assert.Equal(t, "password=[REDACTED]", res.Content[0].(*mcp.TextContent).Text)
		assert.Equal(t, "kept", res.Content[0].(*mcp.TextContent).Meta["example.com/text"])
		assert.IsType(t, &mcp.ImageContent{}, res.Content[1])
		assert.Equal(t, "fine", res.Content[2].(*mcp.TextContent).Text)
		assert.Equal(t, "token=[REDACTED]", res.Content[3].(*mcp.TextContent).Text)
	})
}

// At its timeout, a tool's echo of that isn't its own answer, but all else is.
func TestAnswerAtTheTimeoutStandsUnlessItIsAnEcho(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error // nil is the context's
		echo bool
	}{
		"an echo":          {nil, true},
		"an echo, wrapped": {fmt.Errorf("query: %w", context.DeadlineExceeded), true},
		"another error":    {errBoom, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{Tools: map[string]resilience.Tool{
					"x": {Timeout: time.Second, Cooperative: true},
				}})
				f.typed("x", nil, func(ctx context.Context) error {
					<-ctx.Done()
					if tc.err == nil {
						return ctx.Err()
					}
					return tc.err
				})
				f.connect("")

				res := f.call("x")
				assert.True(t, res.IsError)
				assert.Equal(t, resilience.CodeTimeout, metadataOf(t, res).Code)
				assert.Equal(t, tc.echo, strings.Contains(text(t, res), `"TIMEOUT"`), text(t, res))
			})
		})
	}
}

// What a Failure function takes for no failure is still one for the client.
func TestHideErrorsOfWhatIsNoFailure(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		f := newProtected(t, resilience.Config{}, gosdk.HideErrors(),
			gosdk.Failure(func(context.Context, mcp.Request, *mcp.CallToolResult) error { return nil }))
		f.typed("x", readOnly, func(context.Context) error { return errors.New("no rows at 10.0.0.7") })
		f.connect(protocol)
		res, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x", Arguments: map[string]any{"n": 1}})
		require.NoError(t, err)
		assert.True(t, res.IsError)
		require.Len(t, res.Content, 1)
		assert.Contains(t, res.Content[0].(*mcp.TextContent).Text, "TOOL_FAILED")
		assert.NotContains(t, res.Content[0].(*mcp.TextContent).Text, "10.0.0.7")
		assert.Zero(t, f.guard.Breaker("x").Failures())
	})
}

// A FailureFunc may meet a result that it doesn't expect, as one without content.
func TestFailureFuncThatPanicsHasSaidNothing(t *testing.T) {
	f := newProtected(t, resilience.Config{}, gosdk.Failure(
		func(_ context.Context, _ mcp.Request, res *mcp.CallToolResult) error {
			return errors.New(res.Content[0].(*mcp.TextContent).Text)
		}))
	silent := &mcp.CallToolResult{IsError: true, StructuredContent: map[string]any{"why": "no such row"}}
	marked := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.ImageContent{}}}
	marked.SetError(errBoom)
	f.raw("silent", nil, returns(silent, nil))
	f.raw("marked", nil, returns(marked, nil))
	f.connect(latest)

	assert.Equal(t, silent.StructuredContent, f.call("silent").StructuredContent, "the tool's own answer stands")
	assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
	assert.Len(t, f.call("marked").Content, 2, "with guidance")
	assert.Equal(t, 1, f.guard.Health()[0].ConsecutiveFailures)
}

// The words of a tool's author are the tool's, too.
func TestSecretsInTheWordsOfAnAuthorAreReplaced(t *testing.T) {
	const dsn = "postgres://app:hunter2@db.internal/app"
	own := &resilience.Error{Code: resilience.CodeToolFailed, Message: "can't query " + dsn, Suggestion: "see " + dsn}
	const clean = "postgres://[REDACTED]@db.internal/app"
	var ended resilience.CallEnd
	f := newProtected(t, resilience.Config{Observers: []resilience.Observer{{
		End: func(_ context.Context, e resilience.CallEnd) { ended = e },
	}}})
	f.typed("typed", nil, func(context.Context) error { return own })
	f.raw("raw", nil, returns(nil, own))
	result := errorTextResult("no")
	result.SetError(own)
	f.raw("result", nil, returns(result, nil))
	f.connect(latest)
	for _, tool := range []string{"typed", "raw", "result"} {
		res := f.call(tool)
		assert.NotContains(t, jsonOf(t, res), "hunter2", tool)
		assert.Equal(t, "see "+clean, metadataOf(t, res).Suggestion, tool)
		require.NoError(t, f.guard.Flush(t.Context()))
		assert.Equal(t, own.Message, ended.Err.Message, "observers are the operator's")
	}
	assert.Contains(t, own.Message, "hunter2", "the author's own isn't changed")
}
