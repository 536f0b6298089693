//lint:file-ignore SA1019 servers still ask for sampling and roots
package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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
	errArguments := errors.New(`validating "arguments": required: missing properties: ["n"]`)

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
		"known, bad arguments":   {gosdk.CountKnown, set(errArguments), invalid, errArguments.Error()},
		"all, bad arguments":     {gosdk.CountAll, set(errArguments), invalid, errArguments.Error()},
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

// What the SDK says of arguments helps an agent to correct them.
func TestWhatTheSDKSaysOfArgumentsIsNotHiddenAndCountsAsAMistake(t *testing.T) {
	type item struct {
		Small int8 `json:"small"`
	}
	type arguments struct {
		Number int             `json:"number,omitempty"`
		Time   time.Time       `json:"time,omitzero"`
		List   []item          `json:"list,omitempty"`
		Map    map[string]item `json:"map,omitempty"`
	}
	f := newProtected(t, resilience.Config{}, gosdk.HideErrors(), gosdk.Failure(gosdk.CountErrors))
	schema := json.RawMessage(`{"type":"object","properties":{"number":{"type":["integer","string"]}}}`)
	tool := &mcp.Tool{Name: "x", InputSchema: schema}
	mcp.AddTool(f.server, tool, func(
		context.Context, *mcp.CallToolRequest, arguments,
	) (*mcp.CallToolResult, any, error) {
		t.Error("called")
		return nil, nil, nil
	})
	f.connect("")

	for args, says := range map[string]string{
		`{"number":true}`:                      `validating "arguments"`,
		`{"number":"many"}`:                    "arguments.number of type int",
		`{"number":99999999999999999999}`:      "arguments.number of type int",
		`{"time":"soon"}`:                      "arguments.time of type time.Time",
		`{"list":[{"small":1},{"small":300}]}`: "list.1.small of type int8",
		`{"map":{"a":{"small":300}}}`:          "map.a.small of type int8",
	} {
		res := f.order("x", json.RawMessage(args))
		assert.True(t, res.IsError)
		assert.Contains(t, text(t, res), says)
		assert.NotContains(t, res.Meta, resilience.MetaError)
	}
	assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
}

// A handler may return such an error about its backend.
func TestMismatchInAnAnswerOfTheBackendIsNoMistake(t *testing.T) {
	f := newProtected(t, resilience.Config{}, gosdk.HideErrors(), gosdk.Failure(gosdk.CountErrors))
	f.typed("x", nil, func(context.Context) error {
		return json.Unmarshal([]byte(`{"n":"down"}`), &in{})
	})
	f.connect("")
	assert.NotContains(t, text(t, f.call("x")), "unmarshal")
	assert.Equal(t, 1, f.guard.Breaker("x").Failures())
}

// A client without an ability, or with answers that don't fit, shuts a tool for no other client, whatever counts.
func TestWhatTheSDKSaysOfAClientCountsForNoTool(t *testing.T) {
	type ask = func(context.Context, *mcp.ServerSession) error
	elicit := func(params mcp.ElicitParams) ask {
		return func(ctx context.Context, s *mcp.ServerSession) error {
			_, err := s.Elicit(ctx, &params)
			return err
		}
	}
	number := map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "number"}}}
	onlyForms := &mcp.ClientCapabilities{
		Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}},
	}
	answer := func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"n": "many"}}, nil
	}
	for name, tc := range map[string]struct {
		protocol string
		client   mcp.ClientOptions
		ask      ask
	}{
		"no elicitation": {legacy, mcp.ClientOptions{}, elicit(mcp.ElicitParams{Message: "Sure?"})},
		"no url": {
			legacy, mcp.ClientOptions{ElicitationHandler: answer, Capabilities: onlyForms},
			elicit(mcp.ElicitParams{Message: "Sure?", Mode: "url", URL: "https://example.com", ElicitationID: "1"}),
		},
		"a protocol without requests": {latest, mcp.ClientOptions{}, elicit(mcp.ElicitParams{Message: "Sure?"})},
		"sampling, the same": {latest, mcp.ClientOptions{}, func(ctx context.Context, s *mcp.ServerSession) error {
			_, err := s.CreateMessage(ctx, &mcp.CreateMessageParams{})
			return err
		}},
		"a bad answer": {
			legacy, mcp.ClientOptions{ElicitationHandler: answer},
			elicit(mcp.ElicitParams{Message: "Sure?", RequestedSchema: number}),
		},
	} {
		for count, failure := range map[string]gosdk.FailureFunc{"errors": gosdk.CountErrors, "all": gosdk.CountAll} {
			t.Run(name+", "+count, func(t *testing.T) {
				var said error
				f := newProtected(t, resilience.Config{}, gosdk.Failure(failure))
				f.options = tc.client
				mcp.AddTool(f.server, &mcp.Tool{Name: "x"}, func(
					ctx context.Context, req *mcp.CallToolRequest, _ struct{},
				) (*mcp.CallToolResult, any, error) {
					said = tc.ask(ctx, req.Session)
					return nil, nil, fmt.Errorf("ask: %w", said)
				})
				f.connect(tc.protocol)
				assert.NotContains(t, f.order("x", nil).Meta, resilience.MetaError)
				require.Error(t, said)
				assert.Zero(t, f.guard.Breaker("x").Failures(), said)
			})
		}
	}
}

// Many handlers make a text of a Go error. What an agent has written stands in quotation marks.
func TestDeadBackendIsSeenByTheTextOfAResult(t *testing.T) {
	for said, counted := range map[string]int{
		"request failed: dial tcp 10.0.0.7:80: connect: connection refused": 1,
		"the API answers 503 Service Unavailable":                           1,
		`no page "connection refused"`:                                      0,
	} {
		f := newProtected(t, resilience.Config{})
		f.raw("x", nil, returns(errorTextResult(said), nil))
		f.connect("")
		f.call("x")
		assert.Equal(t, counted, f.guard.Breaker("x").Failures(), said)
	}
}
