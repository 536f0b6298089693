package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
		assert.Equal(t, "can't query "+clean, ended.Err.Message, "so for spans, logs and the console")
	}
	assert.Contains(t, own.Message, "hunter2", "the author's own isn't changed")
}

// At its timeout, a tool's echo of that isn't its own answer, but all else is.
func TestAnswerAtTheTimeoutStandsUnlessItIsAnEcho(t *testing.T) {
	const exceeded = "TIMEOUT: exceeded timeout of 1s. It may have taken effect: check before you call it again."
	for name, tc := range map[string]struct {
		err  error // nil is the context's
		says string
	}{
		"an echo":           {nil, exceeded},
		"an echo, wrapped":  {fmt.Errorf("query: %w", context.DeadlineExceeded), exceeded},
		"an echo, in words": {errors.New("Get \"http://x\": TIMEOUT: Tool 'x' exceeded timeout of 1s"), exceeded},
		"another error":     {errBoom, errBoom.Error()},
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
				assert.Equal(t, tc.says, text(t, res))
			})
		})
	}
}

// The end of a time of the tool's own is its answer, also to a caller who has left.
func TestTimeoutOfTheToolsOwnIsItsAnswer(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	res, err := gosdk.Middleware(newGuard(t, resilience.Config{}))(
		func(context.Context, string, mcp.Request) (mcp.Result, error) {
			leave()
			res := errorTextResult("the query took too long")
			res.SetError(context.DeadlineExceeded)
			return res, nil
		})(ctx, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x"}})
	require.NoError(t, err)
	assert.Equal(t, "the query took too long", text(t, res.(*mcp.CallToolResult)))
}

// The guidance of a protocol error is its data.
func TestProtocolErrorHasGuidanceAsItsData(t *testing.T) {
	f := newProtected(t, resilience.Config{})
	f.raw("down", nil, returns(nil, errBoom))
	f.raw("mistake", nil, returns(nil, errors.New("no such row")))
	f.raw("own data", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		resilience.ReportBackend(ctx, errBoom)
		return nil, &jsonrpc.Error{Code: -32603, Message: "m", Data: []byte(`"mine"`)}
	})
	broken := &jsonrpc.Error{Code: -32050, Message: "m", Data: []byte(`"mine"`)}
	f.raw("broken", nil, returns(nil, fmt.Errorf("read: %w", errors.Join(broken, errBoom))))
	f.raw("no JSON", nil, returns(nil, &jsonrpc.Error{Code: -32050, Message: "m", Data: []byte("<html>502")}))
	f.connect("")

	down := f.protocolError("down")
	assert.Equal(t, errBoom.Error(), down.Message)
	assert.Contains(t, string(down.Data), `"code":"TOOL_FAILED"`)
	assert.Empty(t, f.protocolError("mistake").Data)
	assert.Equal(t, `"mine"`, string(f.protocolError("own data").Data))
	wrapped := f.protocolError("broken")
	assert.EqualValues(t, -32050, wrapped.Code)
	assert.Equal(t, "read: m\n"+errBoom.Error(), wrapped.Message)
	assert.Contains(t, string(wrapped.Data), `"code":"TOOL_FAILED"`, "the SDK keeps no data of a wrapped error")
	assert.Empty(t, f.protocolError("no JSON").Data, "for which the SDK would end the session")
	assert.Equal(t, "m", f.protocolError("no JSON").Message)
}

// A client that is asked to send its user to a page calls again afterwards: nothing has failed.
func TestURLElicitationIsPassedOn(t *testing.T) {
	required := mcp.URLElicitationRequiredError([]*mcp.ElicitParams{{
		Mode: "url", ElicitationID: "e", URL: "https://example.com", Message: "Log in",
	}})
	var direct *jsonrpc.Error
	require.ErrorAs(t, required, &direct)

	var ended resilience.CallEnd
	f := newProtected(t, resilience.Config{Observers: []resilience.Observer{{
		End: func(_ context.Context, e resilience.CallEnd) { ended = e },
	}}}, gosdk.HideErrors())
	f.raw("x", readOnly, returns(nil, required))
	f.raw("wrapped", readOnly, returns(nil, fmt.Errorf("github: %w", required)))
	f.connect("")

	wire := f.protocolError("x")
	assert.EqualValues(t, mcp.CodeURLElicitationRequired, wire.Code)
	assert.JSONEq(t, string(direct.Data), string(wire.Data))
	assert.EqualValues(t, mcp.CodeURLElicitationRequired, f.protocolError("wrapped").Code)

	require.NoError(t, f.guard.Flush(t.Context()))
	assert.Nil(t, ended.Err)
	assert.True(t, ended.Unfinished)
	assert.False(t, ended.Counted)
	assert.Equal(t, 1, ended.Attempts)
}

// What a protocol error says was wrong with the request is no failure of the backend.
func TestMistakesByTheirCode(t *testing.T) {
	for code, mistake := range map[int64]bool{
		jsonrpc.CodeParseError: true, jsonrpc.CodeInvalidRequest: true, jsonrpc.CodeMethodNotFound: true,
		jsonrpc.CodeInvalidParams: true, -32002: true, jsonrpc.CodeInternalError: false, -32050: false, 1: false,
	} {
		var ended resilience.CallEnd
		g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
			End: func(_ context.Context, e resilience.CallEnd) { ended = e },
		}}})
		_, _ = gosdk.Middleware(g)(func(context.Context, string, mcp.Request) (mcp.Result, error) {
			return nil, fmt.Errorf("read: %w", &jsonrpc.Error{Code: code, Message: "m"})
		})(t.Context(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "x"}})
		require.NoError(t, g.Flush(t.Context()))
		assert.Equal(t, mistake, ended.Err.Code == resilience.CodeValidation, code)
	}
}

// A panickingJSON is a value of a struct that isn't filled in.
type panickingJSON struct{ inner *struct{ n byte } }

func (p panickingJSON) MarshalJSON() ([]byte, error) { return []byte{'0' + p.inner.n}, nil }

func withContent(c mcp.Content) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a"}, c}}
}

// The SDK would leave such calls without an answer, or end the process.
func TestResultThatIsNoJSONIsAnswered(t *testing.T) {
	for name, tc := range map[string]struct {
		res     *mcp.CallToolResult
		counted bool
	}{
		"NaN":         {res: &mcp.CallToolResult{StructuredContent: map[string]any{"mean": math.NaN()}}},
		"NaN in meta": {res: &mcp.CallToolResult{Meta: mcp.Meta{"score": math.Inf(1)}}},
		"a panic":     {res: &mcp.CallToolResult{StructuredContent: panickingJSON{}}, counted: true},
		"half of what a backend has said": {res: &mcp.CallToolResult{
			StructuredContent: json.RawMessage(`{"rows":[1,2`)}},
		"NaN in a text":   {res: withContent(&mcp.TextContent{Meta: mcp.Meta{"score": math.NaN()}})},
		"NaN in an image": {res: withContent(&mcp.ImageContent{Annotations: &mcp.Annotations{Priority: math.NaN()}})},
		"NaN in a question": {res: &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
			"q": &mcp.ElicitParams{Message: "?", RequestedSchema: math.NaN()}}}},
		"no text":     {res: withContent((*mcp.TextContent)(nil)), counted: true},
		"no image":    {res: withContent((*mcp.ImageContent)(nil)), counted: true},
		"no resource": {res: withContent((*mcp.EmbeddedResource)(nil)), counted: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{})
				f.raw("x", nil, returns(tc.res, nil))
				f.connect(latest)
				assert.Contains(t, text(t, f.call("x")), "TOOL_FAILED")
				assert.Equal(t, tc.counted, f.guard.Health()[0].ConsecutiveFailures == 1)
			})
		})
	}
}
