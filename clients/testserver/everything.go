//lint:file-ignore SA1019 The suite for protocol 2025-11-25 needs features that 2026-07-28 deprecates.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var serverOptions = &mcp.ServerOptions{
	CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
		return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
	},
	SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
	UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
}

// The suite only checks that there is data and that it is base64, which the SDK ensures.
var (
	image = &mcp.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}
	audio = &mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("RIFF\x04\x00\x00\x00WAVE")}
)

type args = map[string]any

type handler func(ctx context.Context, req *mcp.CallToolRequest, in args) (*mcp.CallToolResult, error)

// addEverything adds the tools, prompts and resources that the conformance suite needs. It knows them
// by their names, and some of them by what they answer.
func addEverything(server *mcp.Server) {
	addContentTools(server)
	addSessionTools(server)
	addInputTools(server)
	addResources(server)
	addPrompts(server)
}

// add adds a tool. The schema of its input is JSON; if it is empty, the input is any object.
func add(server *mcp.Server, name, schema string, h handler) {
	t := &mcp.Tool{Name: name, Description: "For the conformance suite"}
	if schema != "" {
		t.InputSchema = json.RawMessage(schema)
	}
	mcp.AddTool(server, t, func(ctx context.Context, req *mcp.CallToolRequest, in args) (
		*mcp.CallToolResult, any, error,
	) {
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

// always returns the handler of a tool whose results are all the same.
func always(res *mcp.CallToolResult) handler {
	return func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
		clone := *res // the SDK writes to it
		return &clone, nil
	}
}

func fails(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, error) {
	return nil, errors.New("this tool intentionally returns an error for testing")
}

// addContentTools adds tools that need nothing but their input.
func addContentTools(server *mcp.Server) {
	add(server, "test_simple_text", "", always(text("This is a simple text response for testing.")))
	add(server, "test_image_content", "", always(content(image)))
	add(server, "test_audio_content", "", always(content(audio)))
	add(server, "test_embedded_resource", "", always(content(embedded("test://embedded-resource"))))
	add(server, "test_multiple_content_types", "",
		always(content(&mcp.TextContent{Text: "several"}, image, embedded("test://several"))))
	add(server, "test_streaming_elicitation", "", always(text("nothing was asked")))
	add(server, "test_error_handling", "", fails)

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
	}`, always(text("ok")))
	add(server, "test_x_mcp_header", `{
		"type": "object",
		"properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "level": {"type": "integer"}}
	}`, always(text("ok")))
}

func addResources(server *mcp.Server) {
	// read returns a handler. In the body, {id} stands for the variable of the template.
	read := func(mime, body string, blob []byte) mcp.ResourceHandler {
		return func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
				URI: req.Params.URI, MIMEType: mime, Text: strings.ReplaceAll(body, "{id}", id), Blob: blob,
			}}}, nil
		}
	}

	for _, name := range []string{"static-text", "watched-resource"} {
		server.AddResource(&mcp.Resource{Name: name, URI: "test://" + name, MIMEType: "text/plain"},
			read("text/plain", "a text", nil))
	}
	server.AddResource(&mcp.Resource{Name: "static-binary", URI: "test://static-binary", MIMEType: "image/png"},
		read("image/png", "", image.Data))
	server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "template", URITemplate: "test://template/{id}/data", MIMEType: "application/json",
	}, read("application/json", `{"id": "{id}"}`, nil))
}

// textPrompt returns the handler of a prompt that is a single text, in which {name} stands for the
// argument of that name.
func textPrompt(format string) mcp.PromptHandler {
	return func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		text := format
		for k, v := range req.Params.Arguments {
			text = strings.ReplaceAll(text, "{"+k+"}", v)
		}
		return prompt(&mcp.TextContent{Text: text}), nil
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
	addPrompt(server, "test_simple_prompt", nil, textPrompt("This is a simple prompt for testing."))
	addPrompt(server, "test_prompt_with_arguments", []string{"arg1", "arg2"},
		textPrompt("arg1='{arg1}', arg2='{arg2}'"))
	addPrompt(server, "test_prompt_with_embedded_resource", []string{"resourceUri"}, resourcePrompt)
	addPrompt(server, "test_prompt_with_image", nil, imagePrompt)
	addPrompt(server, "test_input_required_result_prompt", nil, inputPrompt)
}

func resourcePrompt(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return prompt(embedded(req.Params.Arguments["resourceUri"]), &mcp.TextContent{Text: "Read this."}), nil
}

func imagePrompt(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return prompt(image, &mcp.TextContent{Text: "Look at this."}), nil
}
