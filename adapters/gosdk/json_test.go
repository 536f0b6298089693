package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
)

// A panickingJSON is a value of a struct that isn't filled in.
type panickingJSON struct{ inner *struct{ n byte } }

func (p panickingJSON) MarshalJSON() ([]byte, error) { return []byte{'0' + p.inner.n}, nil }

func withContent(c mcp.Content) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a"}, c}}
}

// The SDK would leave such calls without an answer, or end the process.
func TestResultThatIsNoJSONIsAnswered(t *testing.T) {
	noJSON, noPriority := mcp.Meta{"score": math.NaN()}, &mcp.Annotations{Priority: math.NaN()}
	for name, tc := range map[string]struct {
		res     *mcp.CallToolResult
		counted bool
	}{
		"NaN":         {res: &mcp.CallToolResult{StructuredContent: map[string]any{"mean": math.NaN()}}},
		"NaN in meta": {res: &mcp.CallToolResult{Meta: mcp.Meta{"score": math.Inf(1)}}},
		"a panic":     {res: &mcp.CallToolResult{StructuredContent: panickingJSON{}}, counted: true},
		"half of what a backend has said": {res: &mcp.CallToolResult{
			StructuredContent: json.RawMessage(`{"rows":[1,2`)}},
		"NaN in a text":            {res: withContent(&mcp.TextContent{Meta: noJSON})},
		"NaN in an image":          {res: withContent(&mcp.ImageContent{Meta: noJSON})},
		"NaN in an audio":          {res: withContent(&mcp.AudioContent{Meta: noJSON})},
		"NaN in a link":            {res: withContent(&mcp.ResourceLink{Meta: noJSON})},
		"the priority of a text":   {res: withContent(&mcp.TextContent{Annotations: noPriority})},
		"the priority of an image": {res: withContent(&mcp.ImageContent{Annotations: noPriority})},
		"the priority of an audio": {res: withContent(&mcp.AudioContent{Annotations: noPriority})},
		"no text":                  {res: withContent((*mcp.TextContent)(nil)), counted: true},
		"no image":                 {res: withContent((*mcp.ImageContent)(nil)), counted: true},
		"no audio":                 {res: withContent((*mcp.AudioContent)(nil)), counted: true},
		"no resource":              {res: withContent((*mcp.EmbeddedResource)(nil)), counted: true},
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

// Before protocol 2026-07-28, the SDK asks, and says itself what can't be encoded.
func TestQuestionThatIsNoJSONIsAnswered(t *testing.T) {
	noNumber := map[string]any{"properties": map[string]any{"n": map[string]any{"default": math.NaN()}}}
	for name, tc := range map[string]struct {
		question mcp.InputRequest
		bySDK    bool
		counted  bool
	}{
		"NaN":     {question: &mcp.ElicitParams{Message: "?", RequestedSchema: noNumber}, bySDK: true},
		"a panic": {question: &mcp.ElicitParams{Message: "?", RequestedSchema: panickingJSON{}}, counted: true},
		"nothing": {bySDK: true},
	} {
		t.Run(name, func(t *testing.T) {
			eachProtocol(t, func(t *testing.T, protocol string) {
				synctest.Test(t, func(t *testing.T) {
					f := newProtected(t, resilience.Config{})
					f.raw("x", nil, returns(&mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": tc.question}}, nil))
					answerAfter(&f.options, 0)
					f.connect(protocol)
					if protocol != latest && tc.bySDK {
						assert.Contains(t, f.protocolError("x").Message, `fulfilling input request "q"`)
						return
					}
					assert.Contains(t, text(t, f.call("x")), "TOOL_FAILED")
					assert.Equal(t, tc.counted, f.guard.Health()[0].ConsecutiveFailures == 1)
				})
			})
		})
	}
}

func TestResultThatIsJSONAlreadyStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{})
		res := &mcp.CallToolResult{
			StructuredContent: json.RawMessage(`{"n":1}`), Meta: mcp.Meta{"k": "v"},
			Content: []mcp.Content{
				&mcp.TextContent{Text: "a"}, &mcp.ImageContent{Data: []byte("b")}, &mcp.AudioContent{Data: []byte("c")},
				&mcp.TextContent{Text: "d", Meta: mcp.Meta{"k": "v"}}, &mcp.ResourceLink{URI: "file:///e", Name: "e"},
			},
		}
		f.raw("x", nil, returns(res, nil))
		f.connect(latest)
		got := f.call("x")
		assert.Equal(t, map[string]any{"n": 1.0}, got.StructuredContent)
		assert.Equal(t, "v", got.Meta["k"])
		assert.Len(t, got.Content, 5)
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
			assert.Contains(t, text(t, f.call(tool)), "check whether it took effect", tool)
		}
	})
}
