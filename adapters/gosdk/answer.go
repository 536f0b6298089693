package gosdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

var (
	errNoResult = errors.New("the tool returned neither a result nor an error")
	errResult   = errors.New("the tool returned a result with isError")
)

// An answer is what one attempt returned, which stands, whatever the guard makes of it. It is empty if the tool
// leaves the answer to the guard: it returned neither a result nor an error, or a *resilience.Error. Errors of the tool
// are examined while the attempt runs, where panics are recovered. Texts are scrubbed after the call, because that
// doesn't belong to the tool's time.
type answer struct {
	result     *mcp.CallToolResult
	needsInput bool           // result requests input from the user, so it is neither a success nor a failure
	err        *protocolError // nil if there is a result
	goError    bool           // err or result has the text of a Go error
}

// MarshalJSON returns the JSON of the result, whose size decides whether a guard keeps it.
func (a answer) MarshalJSON() ([]byte, error) { return json.Marshal(a.result) }

// A protocolError is an error that the SDK turns into a protocol error.
type protocolError struct {
	original error
	wire     jsonrpc.Error // what the SDK sends
}

// newProtocolError returns err as the SDK sends it: a direct *jsonrpc.Error as it is, and otherwise the text of err
// with the code of a *jsonrpc.Error that it wraps. Data that is no JSON is left out, since the SDK would close the
// connection.
func newProtocolError(err error) *protocolError {
	p := &protocolError{original: err}
	if direct, ok := err.(*jsonrpc.Error); ok {
		p.wire = *direct
		if len(direct.Data) > 0 && !json.Valid(direct.Data) {
			p.wire.Data, p.original = nil, &p.wire
		}
		return p
	}

	p.wire.Message = err.Error()
	var wrapped *jsonrpc.Error
	if errors.As(err, &wrapped) {
		p.wire.Code = wrapped.Code
	}
	return p
}

// forClient returns the error for the SDK: the original, or a copy if its text has secrets or the guard has guidance to
// add. That is the data of an error that has none.
func (p *protocolError) forClient(g *resilience.Guard, e *resilience.Error) error {
	wire := p.wire
	wire.Message = g.Scrub(wire.Message)
	if e.HasGuidance() && wire.Data == nil {
		wire.Data, _ = json.Marshal(e) // it can't fail
		return &wire
	}
	if wire.Message == p.wire.Message {
		return p.original
	}
	return &wire
}

// forClient returns the result, without the secrets in the text of its content if it is a failure.
func (a answer) forClient(g *resilience.Guard) *mcp.CallToolResult {
	if a.result == nil || !a.result.IsError || a.needsInput {
		return a.result
	}

	out := *a.result
	out.Content = slices.Clone(out.Content)
	changed := false
	for i, c := range out.Content {
		t, _ := c.(*mcp.TextContent)
		if t == nil {
			continue
		}
		if text := g.Scrub(t.Text); text != t.Text {
			clean := *t
			clean.Text = text
			out.Content[i], changed = &clean, true
		}
	}
	if !changed {
		return a.result
	}
	return &out
}

// withGuidance returns a copy of a tool's own result with e, if that says more than the tool does: in the
// _meta, and as a line in the content, since hosts show that to the model.
func withGuidance(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	out := withMetadata(res, e)
	if line := e.Line(true); line != "" {
		out.Content = append(slices.Clip(res.Content), &mcp.TextContent{Text: line})
	}
	return out
}

// withJoined returns a copy of the result of an earlier call, with a line that says so.
func withJoined(res *mcp.CallToolResult, line string) *mcp.CallToolResult {
	out := withMeta(res, resilience.MetaJoined, true)
	out.Content = append(slices.Clip(res.Content), &mcp.TextContent{Text: line})
	return out
}

// withMetadata returns a copy of a tool's own result with e in the _meta, if that says more than the tool
// does.
func withMetadata(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	if !e.HasGuidance() {
		return res
	}

	return withMeta(res, resilience.MetaError, e)
}

// withMeta returns a copy of res with a value in its _meta.
func withMeta(res *mcp.CallToolResult, key string, value any) *mcp.CallToolResult {
	out := cloneResult(res)
	if out.Meta == nil {
		out.Meta = mcp.Meta{}
	}
	out.Meta[key] = value
	return out
}

// cloneResult returns a copy of res that shares only the content.
func cloneResult(res *mcp.CallToolResult) *mcp.CallToolResult {
	out := *res
	out.Meta = maps.Clone(res.Meta)
	return &out
}

// errorResult returns the result of a call that ended with e and without a result of the tool's own. The tool may be
// nil. If it has an output schema, or may have one, clients would validate structured content by that.
func errorResult(e *resilience.Error, req *mcp.CallToolRequest, tool *mcp.Tool) *mcp.CallToolResult {
	res := &mcp.CallToolResult{}
	if protocol := req.ProtocolVersion(); protocol >= protocolStateless || protocol == "" {
		_ = json.Unmarshal([]byte(`{"content":[],"resultType":"complete"}`), res) // no other way to set the type
	}

	res.IsError = true
	res.Content = []mcp.Content{&mcp.TextContent{Text: e.Line(false)}}
	res.Meta = mcp.Meta{resilience.MetaError: e}
	if tool != nil && tool.OutputSchema == nil {
		res.StructuredContent = e
	}
	return res
}

// checkJSON returns an error if a result, which may be nil, can't be encoded: the SDK would leave the call without an
// answer. It panics where a method of a value does, which would end the process if the SDK called it.
func checkJSON(res *mcp.CallToolResult) error {
	if res == nil || isPlainText(res) {
		return nil
	}
	if _, err := json.Marshal(res); err != nil {
		return fmt.Errorf("the result is no JSON: %w", err)
	}
	return nil
}

// isPlainText reports whether a result is sure to be encoded, since it has nothing but text.
func isPlainText(res *mcp.CallToolResult) bool {
	for _, c := range res.Content {
		if t, _ := c.(*mcp.TextContent); t == nil || t.Meta != nil || t.Annotations != nil {
			return false
		}
	}
	return res.StructuredContent == nil && res.Meta == nil && res.InputRequests == nil
}
