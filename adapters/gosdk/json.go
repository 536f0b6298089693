package gosdk

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// checkJSON returns an error if a result, which may be nil, can't be encoded: the SDK would leave the call without an
// answer. It panics where a method of a value does, which would end the process later.
func checkJSON(res *mcp.CallToolResult) error {
	if res == nil {
		return nil
	}

	for i, c := range res.Content {
		if isPlain(c) {
			continue
		}
		if _, err := json.Marshal(res.Content[i : i+1]); err != nil {
			return fmt.Errorf("the result's content is no JSON: %w", err)
		}
	}
	if raw, ok := res.StructuredContent.(json.RawMessage); !ok || !json.Valid(raw) { // by mcp.AddTool it is
		if _, err := json.Marshal(res.StructuredContent); err != nil {
			return fmt.Errorf("the result's structured content is no JSON: %w", err)
		}
	}
	if len(res.Meta) > 0 {
		if _, err := json.Marshal(res.Meta); err != nil {
			return fmt.Errorf("the result's _meta is no JSON: %w", err)
		}
	}
	if res.InputRequests != nil {
		if _, err := json.Marshal(res.InputRequests); err != nil {
			return fmt.Errorf("what the result asks is no JSON: %w", err)
		}
	}
	return nil
}

// isPlain reports whether c can be encoded for certain, as nearly all content can. It panics where that would.
func isPlain(c mcp.Content) bool {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Meta == nil && c.Annotations == nil
	case *mcp.ImageContent:
		return c.Meta == nil && c.Annotations == nil
	case *mcp.AudioContent:
		return c.Meta == nil && c.Annotations == nil
	}
	return false
}

// isValidData reports whether the data of a protocol error, which may be empty, can be sent. If it can't, the SDK
// closes the connection, and with it ends all other calls.
func isValidData(data json.RawMessage) bool { return len(data) == 0 || json.Valid(data) }

// checkQuestion returns an error if a method of a value in params panics. Before protocol 2026-07-28, the SDK encodes
// the questions of a result on goroutines of its own, where that would end the process. What is no JSON is the SDK's
// to tell.
func checkQuestion(params mcp.Params) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = resilience.AsError("", &resilience.PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	_, _ = json.Marshal(params)
	return nil
}
