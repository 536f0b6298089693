package mcpgo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a tool says of its failure reaches the client, without secrets. A success is the tool's affair.
func TestSecretsInTheWordsOfAFailureAreReplaced(t *testing.T) {
	const dsn, clean = "postgres://app:hunter2@db/app: no luck", "postgres://[REDACTED]@db/app: no luck"
	own := &resilience.Error{Code: resilience.CodeToolFailed, Message: "can't query " + dsn, Suggestion: "see " + dsn}
	pointer := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{
		&mcp.TextContent{Type: "text", Text: dsn}, (*mcp.TextContent)(nil),
	}}
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		want    string // in the answer
	}{
		"an error":           {returns(nil, errors.New(dsn)), clean},
		"a result":           {returns(mcp.NewToolResultError(dsn), nil), clean},
		"a pointer":          {returns(pointer, nil), clean},
		"SetError":           {returns(failedResult(errors.New(dsn)), nil), clean},
		"an author's Error":  {returns(nil, own), "see " + clean},
		"an author's, set":   {returns(failedResult(own), nil), "see " + clean},
		"a success, as ever": {returns(mcp.NewToolResultText(dsn), nil), dsn},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := callOnce(t, tc.handler)
			b, jsonErr := json.Marshal(res)
			require.NoError(t, jsonErr)
			got := fmt.Sprint(string(b), err)
			assert.Contains(t, got, tc.want)
			if tc.want != dsn {
				assert.NotContains(t, got, "hunter2")
			}
		})
	}
	assert.Equal(t, dsn, pointer.Content[0].(*mcp.TextContent).Text, "the tool's own result is never changed")
}

func TestScrubbedResultKeepsAllElse(t *testing.T) {
	image := mcp.NewImageContent("aGk=", "image/png")
	own := &mcp.CallToolResult{
		IsError: true, StructuredContent: map[string]any{"own": true},
		Content: []mcp.Content{
			mcp.NewTextContent("password=hunter2"), image, mcp.NewTextContent("token=abc123"),
		},
	}
	own.Meta = mcp.NewMetaFromMap(map[string]any{"example.com/own": "kept"})
	mcpgo.SetError(own, resilience.MarkInvalid(errBackend))

	res, err := callOnce(t, returns(own, nil))
	require.NoError(t, err)
	assert.True(t, res.IsError)
	assert.Equal(t, own.StructuredContent, res.StructuredContent)
	assert.Equal(t, map[string]any{"example.com/own": "kept"}, res.Meta.AdditionalFields, "nothing of SetError")
	assert.Equal(t, []mcp.Content{
		mcp.NewTextContent("password=[REDACTED]"), image, mcp.NewTextContent("token=[REDACTED]"),
	}, res.Content)
}

// The text of a Go error is hidden, whatever it means. A tool's own text isn't, and an author's Error is for agents.
func TestHiddenErrorReadsAsWhatHasHappened(t *testing.T) {
	const correct, again = "Correct the arguments, or use another tool.", "Try again, or use another tool."
	const change = "Do not repeat this call: change the request or use another tool."
	private := errors.New("no reply to COMMIT from 10.0.0.7")
	own := &resilience.Error{
		Code: "BUSY", Message: "The queue is full", Suggestion: "Call again in 20 seconds.", Retryable: true,
		RetryAfter: 20 * time.Second, Err: private,
	}
	for name, tc := range map[string]struct {
		err        error
		code       resilience.Code
		suggestion string
	}{
		"the backend's":  {resilience.MarkBackend(private), resilience.CodeToolFailed, again},
		"unknown":        {private, resilience.CodeToolFailed, change},
		"a mistake":      {resilience.MarkInvalid(private), resilience.CodeValidation, correct},
		"for good":       {resilience.MarkPermanent(private), resilience.CodeToolFailed, change},
		"an author's":    {own, "BUSY", own.Suggestion},
		"about a client": {resilience.MarkNeutral(private), resilience.CodeToolFailed, change},
	} {
		for kind, handler := range map[string]server.ToolHandlerFunc{
			"an error": returns(nil, tc.err), "SetError": returns(failedResult(tc.err), nil),
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				g := newGuard(t, onlyX(resilience.Tool{
					Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1},
				}))
				res, err := mcpgo.Middleware(g, mcpgo.HideErrors())(handler)(t.Context(), request("x", nil, nil))
				require.NoError(t, err)
				assert.Equal(t, tc.code, errorIn(t, res).Code)
				assert.Equal(t, tc.suggestion, errorIn(t, res).Suggestion)
				assert.NotContains(t, text(t, res), "10.0.0.7")
			})
		}
	}
}
