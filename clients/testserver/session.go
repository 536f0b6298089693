//lint:file-ignore SA1019 The suite for protocol 2025-11-25 needs features that 2026-07-28 deprecates.

package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addSessionTools adds tools that send something to the client while they run, or depend on its
// capabilities.
func addSessionTools(server *mcp.Server) {
	add(server, "test_tool_with_logging", "", logSteps)
	add(server, "test_logging_tool", "", logOnce)
	add(server, "test_tool_with_progress", "", reportProgress)
	add(server, "test_sampling", "", sample)
	add(server, "test_reconnection", "", closeStream)
	add(server, "test_missing_capability", "", requireSampling)
	addElicitation(server)

	add(server, "test_trigger_tool_change", "", func(
		context.Context, *mcp.CallToolRequest, args,
	) (*mcp.CallToolResult, error) {
		add(server, "test_added_later", "", always(text("ok")))
		return text("added"), nil
	})
	add(server, "test_trigger_prompt_change", "", func(
		context.Context, *mcp.CallToolRequest, args,
	) (*mcp.CallToolResult, error) {
		addPrompt(server, "test_added_later", nil, textPrompt("ok"))
		return text("added"), nil
	})
}

func logSteps(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	for _, step := range []string{"started", "processing", "completed"} {
		logInfo(ctx, req, "Tool execution "+step)
	}
	return text("logged"), nil
}

// logOnce sends a message that the client receives only if it asked for that level.
func logOnce(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	logInfo(ctx, req, "only if it was asked for")
	return text("ok"), nil
}

func logInfo(ctx context.Context, req *mcp.CallToolRequest, message string) {
	_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: message})
}

func reportProgress(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	token := req.Params.GetProgressToken()
	for _, done := range []float64{0, 50, 100} {
		params := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: 100}
		if err := req.Session.NotifyProgress(ctx, params); err != nil {
			return nil, err
		}
	}
	return text("%v", token), nil
}

func sample(ctx context.Context, req *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error) {
	prompt, _ := in["prompt"].(string)
	res, err := req.Session.CreateMessage(ctx, sampling(prompt))
	if err != nil {
		return nil, err
	}
	response, _ := res.Content.(*mcp.TextContent)
	return text("LLM response: %v", response), nil
}

func sampling(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		MaxTokens: 100,
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}},
	}
}

// closeStream closes the stream of the request, and finishes after the client has reconnected.
func closeStream(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	if req.Extra != nil && req.Extra.CloseSSEStream != nil {
		req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
	}

	select {
	case <-time.After(100 * time.Millisecond): // the client reconnects meanwhile
		return text("reconnected"), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func requireSampling(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	if caps := req.ClientCapabilities(); caps != nil && caps.Sampling != nil {
		return text("ok"), nil
	}

	return nil, &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "the sampling capability is required",
		Data:    json.RawMessage(`{"requiredCapabilities": {"sampling": {}}}`),
	}
}

// elicit returns the handler of a tool that asks the user for input with the given schema.
func elicit(schema string) handler {
	return func(ctx context.Context, req *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error) {
		message, _ := in["message"].(string)
		res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{
			Message: "asked: " + message, RequestedSchema: json.RawMessage(schema),
		})
		if err != nil {
			return nil, err
		}
		return text("action=%s, content=%v", res.Action, res.Content), nil
	}
}

func addElicitation(server *mcp.Server) {
	add(server, "test_elicitation", "", elicit(`{
		"type": "object",
		"properties": {"username": {"type": "string"}, "email": {"type": "string"}},
		"required": ["username", "email"]
	}`))

	add(server, "test_elicitation_sep1034_defaults", "", elicit(`{"type": "object", "properties": {
		"name": {"type": "string", "default": "John Doe"},
		"age": {"type": "integer", "default": 30},
		"score": {"type": "number", "default": 95.5},
		"status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
		"verified": {"type": "boolean", "default": true}
	}}`))

	add(server, "test_elicitation_sep1330_enums", "", elicit(`{"type": "object", "properties": {
		"untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
		"titledSingle": {"type": "string", "oneOf": [
			{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"},
			{"const": "value3", "title": "Third"}]},
		"legacyEnum": {
			"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
		"untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
		"titledMulti": {"type": "array", "items": {"anyOf": [
			{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"},
			{"const": "value3", "title": "Third"}]}}
	}}`))
}
