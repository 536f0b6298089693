//lint:file-ignore SA1019 The suite for protocol 2025-11-25 needs features that 2026-07-28 deprecates.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// In protocol 2026-07-28, a server doesn't call the client for input. It returns a result that
// requires input, and the client calls again with the responses.

// addInputTools adds tools that require input in this way.
func addInputTools(server *mcp.Server) {
	const prefix = "test_input_required_result_"
	add(server, prefix+"elicitation", "", greet)
	add(server, prefix+"sampling", "", requireOne("capital_question", func() mcp.InputRequest {
		return sampling("What is the capital of France?")
	}))
	add(server, prefix+"list_roots", "", requireOne("client_roots", func() mcp.InputRequest {
		return &mcp.ListRootsParams{}
	}))
	add(server, prefix+"multiple_inputs", "", requireAll)
	add(server, prefix+"multi_round", "", requireInRounds)
	add(server, prefix+"request_state", "", confirm)
	add(server, prefix+"tampered_state", "", confirm)
	add(server, prefix+"capabilities", "", requireWhatTheClientCan)
}

// inputRequired returns a result that requires input. The client sends the state back.
func inputRequired(state string, inputs mcp.InputRequestMap) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: inputs, RequestState: state}
}

// elicitation returns a request for a field of the given type.
func elicitation(field, kind string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: "Please enter your " + field, RequestedSchema: json.RawMessage(
		fmt.Sprintf(`{"type": "object", "properties": {%q: {"type": %q}}, "required": [%[1]q]}`, field, kind))}
}

// elicited returns the field that the user filled in, or nil if the user didn't.
func elicited(responses mcp.InputResponseMap, key, field string) any {
	if res, ok := responses[key].(*mcp.ElicitResult); ok && res != nil && res.Action == "accept" {
		return res.Content[field]
	}
	return nil
}

// allInputs returns a request for each kind of input.
func allInputs() mcp.InputRequestMap {
	return mcp.InputRequestMap{
		"user_name":    elicitation("name", "string"),
		"greeting":     sampling("Say hello"),
		"client_roots": &mcp.ListRootsParams{},
	}
}

func greet(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	if name, _ := elicited(req.Params.InputResponses, "user_name", "name").(string); name != "" {
		return text("Hello, %s!", name), nil
	}
	return inputRequired("", mcp.InputRequestMap{"user_name": elicitation("name", "string")}), nil
}

// requireOne returns the handler of a tool that requires a single input, whatever it is. Each call
// needs an input request of its own, because the SDK may write to it.
func requireOne(key string, newInput func() mcp.InputRequest) handler {
	return func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		if req.Params.InputResponses[key] != nil {
			return text("thank you"), nil
		}
		return inputRequired("", mcp.InputRequestMap{key: newInput()}), nil
	}
}

func requireAll(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	r := req.Params.InputResponses
	if r["user_name"] != nil && r["greeting"] != nil && r["client_roots"] != nil {
		return text("thank you"), nil
	}
	return inputRequired("several", allInputs()), nil
}

// requireInRounds requires a name, then a color. Between the rounds, the state holds the name.
func requireInRounds(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	r := req.Params.InputResponses
	name, second := strings.CutPrefix(req.Params.RequestState, "round 2 of ")
	switch {
	case req.Params.RequestState == "":
		return inputRequired("round 1", mcp.InputRequestMap{"step1": elicitation("name", "string")}), nil
	case !second:
		state := fmt.Sprintf("round 2 of %v", elicited(r, "step1", "name"))
		return inputRequired(state, mcp.InputRequestMap{"step2": elicitation("color", "string")}), nil
	default:
		return text("%s likes %v", name, elicited(r, "step2", "color")), nil
	}
}

// confirm rejects a state that it didn't return itself.
func confirm(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	const state = "to be confirmed" // a real server signs it
	switch {
	case req.Params.RequestState != "" && req.Params.RequestState != state:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "this isn't the state that I gave you"}
	case req.Params.RequestState != "" && elicited(req.Params.InputResponses, "confirm", "ok") != nil:
		return text("state-ok"), nil
	}
	return inputRequired(state, mcp.InputRequestMap{"confirm": elicitation("ok", "boolean")}), nil
}

// requireWhatTheClientCan requires only input that the client can provide.
func requireWhatTheClientCan(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
	caps, inputs := req.ClientCapabilities(), allInputs()
	if caps == nil {
		caps = &mcp.ClientCapabilities{}
	}
	if caps.Elicitation == nil {
		delete(inputs, "user_name")
	}
	if caps.Sampling == nil {
		delete(inputs, "greeting")
	}
	if caps.RootsV2 == nil {
		delete(inputs, "client_roots")
	}

	if len(inputs) == 0 || len(req.Params.InputResponses) > 0 {
		return text("thank you"), nil
	}
	return inputRequired("", inputs), nil
}

// inputPrompt is a prompt that requires input.
func inputPrompt(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	if context := elicited(req.Params.InputResponses, "user_context", "context"); context != nil {
		return prompt(&mcp.TextContent{Text: fmt.Sprint(context)}), nil
	}
	inputs := mcp.InputRequestMap{"user_context": elicitation("context", "string")}
	return &mcp.GetPromptResult{InputRequests: inputs}, nil
}
