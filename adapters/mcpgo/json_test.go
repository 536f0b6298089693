package mcpgo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A panickingJSON is a value of a struct that isn't filled in.
type panickingJSON struct{ inner *struct{ n byte } }

func (p panickingJSON) MarshalJSON() ([]byte, error) { return []byte{'0' + p.inner.n}, nil }

type stats struct {
	Mean float64 `json:"mean"`
}

func withContent(c mcp.Content) server.ToolHandlerFunc {
	return returns(&mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent("a"), c}}, nil)
}

// mcp-go would leave such calls without an answer, or end the process.
func TestResultThatIsNoJSONIsAnswered(t *testing.T) {
	inMeta := new(mcp.CallToolResult)
	inMeta.Meta = &mcp.Meta{AdditionalFields: map[string]any{"score": math.Inf(1)}}
	noJSON := &mcp.Meta{AdditionalFields: map[string]any{"score": math.NaN()}}
	noPriority := mcp.Annotated{Annotations: &mcp.Annotations{Priority: new(float64)}}
	*noPriority.Annotations.Priority = math.NaN()
	required := &mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{{RequestedSchema: math.NaN()}}}
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		counted bool
	}{
		"the mean of nothing": {handler: mcp.NewStructuredToolHandler(
			func(context.Context, mcp.CallToolRequest, struct{}) (stats, error) { return stats{math.NaN()}, nil })},
		"NaN in meta":              {handler: returns(inMeta, nil)},
		"NaN in a text":            {handler: withContent(mcp.TextContent{Meta: noJSON})},
		"NaN in an image":          {handler: withContent(mcp.ImageContent{Meta: noJSON})},
		"NaN in an audio":          {handler: withContent(mcp.AudioContent{Meta: noJSON})},
		"NaN in a link":            {handler: withContent(mcp.ResourceLink{Annotated: noPriority})},
		"the priority of a text":   {handler: withContent(mcp.TextContent{Annotated: noPriority})},
		"the priority of an image": {handler: withContent(mcp.ImageContent{Annotated: noPriority})},
		"the priority of an audio": {handler: withContent(mcp.AudioContent{Annotated: noPriority})},
		"half of what a backend has said": {handler: returns(&mcp.CallToolResult{
			StructuredContent: json.RawMessage(`{"rows":[1,2`)}, nil)},
		"NaN as a progress token": {handler: returns(&mcp.CallToolResult{
			Result: mcp.Result{Meta: &mcp.Meta{ProgressToken: math.NaN()}}}, nil)},
		"NaN in a required elicitation": {handler: returns(nil, fmt.Errorf("first: %w", required))},
		"a panic":                       {handler: returns(&mcp.CallToolResult{StructuredContent: panickingJSON{}}, nil), counted: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			res, err := mcpgo.Middleware(g)(tc.handler)(t.Context(), request("x", map[string]any{}, nil))
			require.NoError(t, err)
			require.True(t, res.IsError)
			assert.Contains(t, res.Content[0].(mcp.TextContent).Text, "TOOL_FAILED")
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures == 1)
		})
	}
}

// Newer versions of mcp-go send the raw structured content, if there is any, instead of the other.
func TestRawStructuredContentThatIsNoJSONIsAnswered(t *testing.T) {
	for raw, want := range map[string]string{`{"rows":[1,2`: "TOOL_FAILED", `{"rows":[1,2]}`: "rows"} {
		t.Run(raw, func(t *testing.T) {
			res := mcp.NewToolResultText("rows")
			field := reflect.ValueOf(res).Elem().FieldByName("RawStructuredContent")
			if !field.IsValid() {
				t.Skip("this version of mcp-go has no raw structured content")
			}
			field.SetBytes([]byte(raw))
			res.StructuredContent = map[string]any{"rows": []int{1, 2}}

			got, err := mcpgo.Middleware(newGuard(t, resilience.Config{}))(returns(res, nil))(
				t.Context(), request("x", map[string]any{}, nil))
			require.NoError(t, err)
			assert.Contains(t, text(t, got), want)
		})
	}
}

func TestQuestionThatIsNoJSONIsAnswered(t *testing.T) {
	skipWithoutElicitation(t)
	for name, tc := range map[string]struct {
		schema  any
		counted bool
	}{
		"NaN":     {schema: map[string]any{"properties": map[string]any{"n": map[string]any{"default": math.NaN()}}}},
		"a panic": {schema: panickingJSON{}, counted: true},
	} {
		t.Run(name, func(t *testing.T) {
			res := elicitation()
			question := reflect.ValueOf(res).Elem().FieldByName("InputRequests").MapIndex(reflect.ValueOf("sure"))
			question.FieldByName("Elicitation").Interface().(*mcp.ElicitationParams).RequestedSchema = tc.schema

			g := newGuard(t, resilience.Config{})
			got, err := mcpgo.Middleware(g)(returns(res, nil))(t.Context(), request("x", map[string]any{}, nil))
			require.NoError(t, err)
			assert.Contains(t, text(t, got), "TOOL_FAILED")
			assert.Equal(t, tc.counted, failures(t, g, "x") == 1)
		})
	}
}

func TestResultThatIsJSONStands(t *testing.T) {
	score := &mcp.Meta{AdditionalFields: map[string]any{"score": 0.5}}
	g := newGuard(t, resilience.Config{})
	res, err := mcpgo.Middleware(g)(returns(&mcp.CallToolResult{Content: []mcp.Content{
		mcp.NewTextContent("a"), mcp.TextContent{Text: "b", Meta: score}, mcp.ResourceLink{URI: "file:///c", Name: "c"},
	}}, nil))(t.Context(), request("x", map[string]any{}, nil))
	require.NoError(t, err)
	assert.False(t, res.IsError)
	assert.Len(t, res.Content, 3)
}
