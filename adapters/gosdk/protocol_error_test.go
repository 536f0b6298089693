package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// The guidance of a protocol error is its data.
func TestProtocolErrorHasGuidanceAsItsData(t *testing.T) {
	f := newProtected(t, resilience.Config{})
	f.raw("down", nil, returns(nil, errBoom))
	f.raw("mistake", nil, returns(nil, errors.New("no such row")))
	f.raw("own data", nil, returns(nil, &jsonrpc.Error{Code: -32603, Message: "m", Data: []byte(`"mine"`)}))
	broken := &jsonrpc.Error{Code: -32050, Message: "m", Data: []byte(`"mine"`)}
	f.raw("broken", nil, returns(nil, fmt.Errorf("read: %w", errors.Join(broken, errBoom))))
	f.connect("")

	down := f.protocolError("down")
	assert.Equal(t, errBoom.Error(), down.Message)
	assert.Contains(t, string(down.Data), `"code":"TOOL_FAILED"`)
	assert.Empty(t, f.protocolError("mistake").Data)
	assert.Equal(t, `"mine"`, string(f.protocolError("own data").Data))
	wrapped := f.protocolError("broken")
	assert.EqualValues(t, -32050, wrapped.Code)
	assert.Contains(t, string(wrapped.Data), `"code":"TOOL_FAILED"`, "the SDK keeps no data of a wrapped error")
}

// A protocol error of which the guard has something to say keeps its own data.
func TestProtocolErrorWithGuidanceKeepsItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{Tools: map[string]resilience.Tool{
			"x": {Timeout: time.Second, Cooperative: true},
		}})
		var data json.RawMessage
		f.raw("x", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(2 * time.Second)
			return nil, &jsonrpc.Error{Code: -32050, Message: "m", Data: data}
		})
		f.connect("")
		assert.Contains(t, string(f.protocolError("x").Data), `"code":"TIMEOUT"`)
		data = json.RawMessage(`"mine"`)
		assert.Equal(t, `"mine"`, string(f.protocolError("x").Data))
	})
}

// Of an error whose data is no JSON, as half of what a backend has said, the SDK would end the whole session.
func TestProtocolErrorWithoutDataThatIsNoJSON(t *testing.T) {
	const html = "<html>502"
	for name, tc := range map[string]struct {
		err  error
		want string // in the data
	}{
		"a mistake":   {err: &jsonrpc.Error{Code: -32050, Message: "m", Data: json.RawMessage(html)}},
		"empty":       {err: &jsonrpc.Error{Code: -32050, Message: "m", Data: json.RawMessage{}}},
		"a secret":    {err: &jsonrpc.Error{Code: -32050, Message: "password=hunter2", Data: json.RawMessage(html)}},
		"with a time": {err: &jsonrpc.Error{Code: -32050, Message: "m", Data: json.RawMessage(html)}, want: "TIMEOUT"},
	} {
		t.Run(name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, protocol string) {
				synctest.Test(t, func(t *testing.T) {
					f := newProtected(t, resilience.Config{Tools: map[string]resilience.Tool{
						"x": {Timeout: time.Second, Cooperative: true},
					}})
					f.raw("x", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						if tc.want != "" {
							time.Sleep(2 * time.Second)
						}
						return nil, tc.err
					})
					f.raw("y", nil, returns(textResult("fine"), nil))
					f.connect(protocol)

					got := f.protocolError("x")
					assert.EqualValues(t, -32050, got.Code)
					assert.NotContains(t, got.Message, "hunter2")
					assert.Contains(t, string(got.Data), tc.want)
					assert.Equal(t, tc.want == "", got.Data == nil)
					assert.Equal(t, "fine", text(t, f.call("y")), "the session is still up")
				})
			})
		})
	}
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

// Observers receive what HideErrors keeps from clients.
func TestHiddenErrorIsTheObservers(t *testing.T) {
	var ended resilience.CallEnd
	f := newProtected(t, resilience.Config{Observers: []resilience.Observer{{
		End: func(_ context.Context, e resilience.CallEnd) { ended = e },
	}}}, gosdk.HideErrors())
	f.raw("x", nil, returns(nil, errBoom))
	f.connect("")
	assert.NotContains(t, jsonOf(t, f.call("x")), "boom")
	require.NoError(t, f.guard.Flush(t.Context()))
	assert.ErrorIs(t, ended.Err, errBoom)
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
