//lint:file-ignore SA1019 The suite for protocol 2025-11-25 asks for what 2026-07-28 deprecates.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the conformance suite asks a server for: it knows these tools, prompts and
// resources by their names, and some of them by what they answer.

var options = &mcp.ServerOptions{
	CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
		return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
	},
	SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
	UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
}

// The suite only looks whether there is data and whether it is base64, which the SDK
// sees to.
var (
	image = &mcp.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}
	audio = &mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("RIFF\x04\x00\x00\x00WAVE")}
)

type args = map[string]any

type handler func(ctx context.Context, req *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error)

func addEverything(server *mcp.Server) {
	addContent(server)
	addTalking(server)
	addAsking(server)
	addResources(server)
	addPrompts(server)
}

// add takes an input schema as JSON, or "" for that of any object.
func add(server *mcp.Server, name, schema string, h handler) {
	t := &mcp.Tool{Name: name, Description: "For the conformance suite"}
	if schema != "" {
		t.InputSchema = json.RawMessage(schema)
	}
	mcp.AddTool(server, t, func(ctx context.Context, req *mcp.CallToolRequest, in args) (*mcp.CallToolResult, any, error) {
		res, err := h(ctx, req, in)
		return res, nil, err
	})
}

func content(c ...mcp.Content) *mcp.CallToolResult { return &mcp.CallToolResult{Content: c} }

func text(format string, a ...any) *mcp.CallToolResult {
	return content(&mcp.TextContent{Text: fmt.Sprintf(format, a...)})
}

func embedded(uri string) *mcp.EmbeddedResource {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "embedded"}}
}

// answers is a tool that always says the same.
func answers(res *mcp.CallToolResult) handler {
	return func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		own := *res // the SDK writes to it
		return &own, nil
	}
}

func addContent(server *mcp.Server) {
	add(server, "test_simple_text", "", answers(text("This is a simple text response for testing.")))
	add(server, "test_image_content", "", answers(content(image)))
	add(server, "test_audio_content", "", answers(content(audio)))
	add(server, "test_embedded_resource", "", answers(content(embedded("test://embedded-resource"))))
	add(server, "test_multiple_content_types", "", answers(content(&mcp.TextContent{Text: "several"}, image, embedded("test://several"))))
	add(server, "test_streaming_elicitation", "", answers(text("nothing was asked")))
	add(server, "test_error_handling", "", func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		return nil, errors.New("this tool intentionally returns an error for testing")
	})
	add(server, "json_schema_2020_12_tool", `{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type": "object",
		"$defs": {"address": {
			"$anchor": "addressDef",
			"type": "object",
			"properties": {"street": {"type": "string"}, "city": {"type": "string"}}
		}},
		"properties": {
			"name": {"type": "string"},
			"address": {"$ref": "#/$defs/address"},
			"contactMethod": {"type": "string", "enum": ["phone", "email"]},
			"phone": {"type": "string"},
			"email": {"type": "string"}
		},
		"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
		"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
		"then": {"required": ["phone"]},
		"else": {"required": ["email"]},
		"additionalProperties": false
	}`, answers(text("ok")))
	add(server, "test_x_mcp_header", `{
		"type": "object",
		"properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "level": {"type": "integer"}}
	}`, answers(text("ok")))
}

// addTalking adds tools that talk to the client while they run.
func addTalking(server *mcp.Server) {
	log := func(ctx context.Context, req *mcp.CallToolRequest, what string) {
		_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: what})
	}
	add(server, "test_tool_with_logging", "", func(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		for _, what := range []string{"started", "processing", "completed"} {
			log(ctx, req, "Tool execution "+what)
		}
		return text("logged"), nil
	})
	add(server, "test_logging_tool", "", func(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		log(ctx, req, "only if it was asked for")
		return text("ok"), nil
	})
	add(server, "test_tool_with_progress", "", func(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		token := req.Params.GetProgressToken()
		for _, done := range []float64{0, 50, 100} {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: 100})
			if err != nil {
				return nil, err
			}
		}
		return text("%v", token), nil
	})
	add(server, "test_sampling", "", func(ctx context.Context, req *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error) {
		prompt, _ := in["prompt"].(string)
		res, err := req.Session.CreateMessage(ctx, sampling(prompt))
		if err != nil {
			return nil, err
		}
		said, _ := res.Content.(*mcp.TextContent)
		return text("LLM response: %v", said), nil
	})
	elicits := func(schema string) handler {
		return func(ctx context.Context, req *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error) {
			message, _ := in["message"].(string)
			res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "asked: " + message, RequestedSchema: json.RawMessage(schema)})
			if err != nil {
				return nil, err
			}
			return text("action=%s, content=%v", res.Action, res.Content), nil
		}
	}
	add(server, "test_elicitation", "", elicits(`{
		"type": "object",
		"properties": {"username": {"type": "string"}, "email": {"type": "string"}},
		"required": ["username", "email"]
	}`))
	add(server, "test_elicitation_sep1034_defaults", "", elicits(`{"type": "object", "properties": {
		"name": {"type": "string", "default": "John Doe"},
		"age": {"type": "integer", "default": 30},
		"score": {"type": "number", "default": 95.5},
		"status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
		"verified": {"type": "boolean", "default": true}
	}}`))
	add(server, "test_elicitation_sep1330_enums", "", elicits(`{"type": "object", "properties": {
		"untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
		"titledSingle": {"type": "string", "oneOf": [
			{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}, {"const": "value3", "title": "Third"}]},
		"legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
		"untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
		"titledMulti": {"type": "array", "items": {"anyOf": [
			{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}, {"const": "value3", "title": "Third"}]}}
	}}`))
	add(server, "test_reconnection", "", func(ctx context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		if req.Extra != nil && req.Extra.CloseSSEStream != nil {
			req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
		}
		select {
		case <-time.After(100 * time.Millisecond): // the client comes back meanwhile
			return text("reconnected"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	add(server, "test_trigger_tool_change", "", func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		add(server, "test_added_later", "", answers(text("ok")))
		return text("added"), nil
	})
	add(server, "test_trigger_prompt_change", "", func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		addPrompt(server, "test_added_later", nil, says("ok"))
		return text("added"), nil
	})
	add(server, "test_missing_capability", "", func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		if caps := req.ClientCapabilities(); caps != nil && caps.Sampling != nil {
			return text("ok"), nil
		}
		return nil, &jsonrpc.Error{
			Code:    mcp.CodeMissingRequiredClientCapabilities,
			Message: "the sampling capability is required",
			Data:    json.RawMessage(`{"requiredCapabilities": {"sampling": {}}}`),
		}
	})
}

func sampling(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		MaxTokens: 100,
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}},
	}
}

func eliciting(field, kind string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: "Please enter your " + field, RequestedSchema: json.RawMessage(
		fmt.Sprintf(`{"type": "object", "properties": {%q: {"type": %q}}, "required": [%[1]q]}`, field, kind))}
}

// answered is the field that the user filled in, if he did.
func answered(responses mcp.InputResponseMap, key, field string) any {
	if res, ok := responses[key].(*mcp.ElicitResult); ok && res != nil && res.Action == "accept" {
		return res.Content[field]
	}
	return nil
}

// asks is what protocol 2026-07-28 has instead of calls from the server to the client: a
// result that asks, after which the client calls again.
func asks(state string, inputs mcp.InputRequestMap) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: inputs, RequestState: state}
}

// addAsking adds tools that ask for input in that way.
func addAsking(server *mcp.Server) {
	const prefix = "test_input_required_result_"
	add(server, prefix+"elicitation", "", func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		if name, _ := answered(req.Params.InputResponses, "user_name", "name").(string); name != "" {
			return text("Hello, %s!", name), nil
		}
		return asks("", mcp.InputRequestMap{"user_name": eliciting("name", "string")}), nil
	})
	add(server, prefix+"sampling", "", func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		if req.Params.InputResponses["capital_question"] != nil {
			return text("thank you"), nil
		}
		return asks("", mcp.InputRequestMap{"capital_question": sampling("What is the capital of France?")}), nil
	})
	add(server, prefix+"list_roots", "", func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		if req.Params.InputResponses["client_roots"] != nil {
			return text("thank you"), nil
		}
		return asks("", mcp.InputRequestMap{"client_roots": &mcp.ListRootsParams{}}), nil
	})
	everything := func() mcp.InputRequestMap {
		return mcp.InputRequestMap{
			"user_name":    eliciting("name", "string"),
			"greeting":     sampling("Say hello"),
			"client_roots": &mcp.ListRootsParams{},
		}
	}
	add(server, prefix+"multiple_inputs", "", func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		r := req.Params.InputResponses
		if r["user_name"] != nil && r["greeting"] != nil && r["client_roots"] != nil {
			return text("thank you"), nil
		}
		return asks("several", everything()), nil
	})
	add(server, prefix+"multi_round", "", func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		r := req.Params.InputResponses
		switch name, second := strings.CutPrefix(req.Params.RequestState, "round 2 of "); {
		case req.Params.RequestState == "":
			return asks("round 1", mcp.InputRequestMap{"step1": eliciting("name", "string")}), nil
		case !second:
			return asks(fmt.Sprintf("round 2 of %v", answered(r, "step1", "name")), mcp.InputRequestMap{"step2": eliciting("color", "string")}), nil
		default:
			return text("%s likes %v", name, answered(r, "step2", "color")), nil
		}
	})
	confirm := func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		const state = "to be confirmed" // a real server signs it
		switch {
		case req.Params.RequestState != "" && req.Params.RequestState != state:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "this isn't the state that I gave you"}
		case req.Params.RequestState != "" && answered(req.Params.InputResponses, "confirm", "ok") != nil:
			return text("state-ok"), nil
		}
		return asks(state, mcp.InputRequestMap{"confirm": eliciting("ok", "boolean")}), nil
	}
	add(server, prefix+"request_state", "", confirm)
	add(server, prefix+"tampered_state", "", confirm)
	add(server, prefix+"capabilities", "", func(_ context.Context, req *mcp.CallToolRequest, _ args) (*mcp.CallToolResult, error) {
		caps, inputs := req.ClientCapabilities(), everything()
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
		return asks("", inputs), nil
	})
}

func addResources(server *mcp.Server) {
	read := func(mime, body string, blob []byte) mcp.ResourceHandler {
		return func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
				URI: req.Params.URI, MIMEType: mime, Text: strings.ReplaceAll(body, "{id}", id), Blob: blob,
			}}}, nil
		}
	}
	for _, name := range []string{"static-text", "watched-resource"} {
		server.AddResource(&mcp.Resource{Name: name, URI: "test://" + name, MIMEType: "text/plain"}, read("text/plain", "a text", nil))
	}
	server.AddResource(&mcp.Resource{Name: "static-binary", URI: "test://static-binary", MIMEType: "image/png"}, read("image/png", "", image.Data))
	server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "template", URITemplate: "test://template/{id}/data", MIMEType: "application/json"},
		read("application/json", `{"id": "{id}"}`, nil))
}

// says is a prompt of one text, in which {name} stands for an argument.
func says(format string) mcp.PromptHandler {
	return func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		said := format
		for k, v := range req.Params.Arguments {
			said = strings.ReplaceAll(said, "{"+k+"}", v)
		}
		return prompt(&mcp.TextContent{Text: said}), nil
	}
}

func prompt(contents ...mcp.Content) *mcp.GetPromptResult {
	res := &mcp.GetPromptResult{}
	for _, c := range contents {
		res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: c})
	}
	return res
}

func addPrompt(server *mcp.Server, name string, arguments []string, h mcp.PromptHandler) {
	p := &mcp.Prompt{Name: name, Description: "For the conformance suite"}
	for _, a := range arguments {
		p.Arguments = append(p.Arguments, &mcp.PromptArgument{Name: a, Description: "An argument", Required: true})
	}
	server.AddPrompt(p, h)
}

func addPrompts(server *mcp.Server) {
	addPrompt(server, "test_simple_prompt", nil, says("This is a simple prompt for testing."))
	addPrompt(server, "test_prompt_with_arguments", []string{"arg1", "arg2"}, says("arg1='{arg1}', arg2='{arg2}'"))
	addPrompt(server, "test_prompt_with_embedded_resource", []string{"resourceUri"}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return prompt(embedded(req.Params.Arguments["resourceUri"]), &mcp.TextContent{Text: "Read this."}), nil
	})
	addPrompt(server, "test_prompt_with_image", nil, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return prompt(image, &mcp.TextContent{Text: "Look at this."}), nil
	})
	addPrompt(server, "test_input_required_result_prompt", nil, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		if said := answered(req.Params.InputResponses, "user_context", "context"); said != nil {
			return prompt(&mcp.TextContent{Text: fmt.Sprint(said)}), nil
		}
		return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{"user_context": eliciting("context", "string")}}, nil
	})
}
