package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// An answer is what one attempt returned, which stands, whatever the guard makes of it. It is made
// within the attempt, because that calls methods of the tool's errors, which may panic. Its text is scrubbed
// after the call, because that takes time which isn't the tool's. A tool that returned neither a result nor
// an error, or a *resilience.Error, leaves the answer to the guard: then the answer is empty.
type answer struct {
	result     *mcp.CallToolResult
	needsInput bool           // the result requests input from the user, so it is neither a success nor a failure
	err        *protocolError // nil if there is a result
	goError    bool           // err, or the result, has the text of a Go error
}

// A protocolError is an error that the SDK turns into a protocol error.
type protocolError struct {
	error               // what the handler returned
	wire  jsonrpc.Error // what the SDK makes of it
}

var (
	errNoResult = errors.New("the tool returned neither a result nor an error")
	errResult   = errors.New("the tool returned a result with isError")
)

// answerOfResult returns the answer and the error for the guard that a result stands for.
func (o *options) answerOfResult(
	ctx context.Context, req mcp.Request, res *mcp.CallToolResult,
) (answer, error) {
	switch {
	case res == nil:
		return answer{}, errNoResult
	case res.InputRequests != nil, res.NeedsInput(): // without requests, the server is too busy for the call
		return answer{result: res, needsInput: true}, resilience.ErrUnfinished
	case res.IsError:
		return answer{result: res, goError: hasGoError(req, res)}, o.failure(ctx, req, res)
	}
	return answer{result: res}, nil
}

// answerOfError returns the answer and the error for the guard that a handler's error stands for.
func (o *options) answerOfError(err error) (answer, error) {
	var own *resilience.Error
	if errors.As(err, &own) {
		return answer{}, err
	}

	said := err
	var wire *jsonrpc.Error
	isProtocolError := errors.As(err, &wire)
	direct, isDirect := err.(*jsonrpc.Error)
	switch {
	case o.hideErrors && isProtocolError && !isDirect,
		isDirect && !isValidData(direct.Data):
		said = &jsonrpc.Error{Code: wire.Code, Message: wire.Message}
	}
	return answer{err: newProtocolError(said), goError: !isProtocolError}, markProtocolError(markClientError(err), err)
}

func newProtocolError(err error) *protocolError {
	e := &protocolError{error: err, wire: jsonrpc.Error{Message: err.Error()}}
	var wrapped *jsonrpc.Error
	if errors.As(err, &wrapped) {
		e.wire.Code = wrapped.Code
	}
	if direct, ok := err.(*jsonrpc.Error); ok {
		e.wire = *direct
	}
	return e
}

// A scrubbedError is a handler's error without the secrets in its text.
type scrubbedError struct {
	error
	text string
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.error }

// forClient returns the error for the SDK, without the secrets in its text. What the guard has to say is the
// data of a protocol error that has none.
func (p *protocolError) forClient(g *resilience.Guard, e *resilience.Error) error {
	wire := p.wire
	wire.Message = g.Scrub(wire.Message)
	switch {
	case e.HasGuidance() && wire.Data == nil:
		wire.Data, _ = json.Marshal(e) // it can't fail
		return &wire
	case wire.Message == p.wire.Message:
		return p.error
	case wire.Data != nil:
		return &wire // of a wrapped error the SDK keeps no data
	default:
		return &scrubbedError{p.error, wire.Message}
	}
}

// markProtocolError marks err as the caller's mistake if what was said in it is a protocol error that says so, and as
// unfinished if that asks the client to send its user to a page. Of others it isn't known whose fault they are: the SDK
// also returns them where a client can't be asked, and servers make internal errors of whatever a tool returns.
func markProtocolError(err, said error) error {
	var wire *jsonrpc.Error
	if !errors.As(said, &wire) {
		return err
	}

	switch {
	case isMistake(wire.Code):
		return resilience.MarkInvalid(err)
	case wire.Code == mcp.CodeURLElicitationRequired:
		return resilience.MarkInvalid(errors.Join(resilience.ErrUnfinished, err))
	}
	return err
}

// isMistake reports whether a code of MCP's says that the caller has made a mistake.
func isMistake(code int64) bool {
	switch code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeParseError,
		-32002: // a resource wasn't found, in older protocols
		return true
	}
	return false
}

// timedOut reports whether err says no more than that the timeout of ctx, a guarded call's, has passed.
func timedOut(ctx context.Context, err error) bool {
	end, ok := context.Cause(ctx).(*resilience.Error)
	return ok && end.Code == resilience.CodeTimeout && errors.Is(err, context.DeadlineExceeded)
}

// withGuidance returns a copy of a tool's own result with e, if that says more than the tool does: in the
// _meta, and in the content, since hosts show that to the model.
func withGuidance(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	out := withMetadata(res, e)
	if out != res {
		text, _ := json.Marshal(e) // it can't fail
		out.Content = append(slices.Clip(res.Content), &mcp.TextContent{Text: string(text)})
	}
	return out
}

// withMetadata returns a copy of a tool's own result with e in the _meta, if that says more than the tool
// does.
func withMetadata(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	if !e.HasGuidance() {
		return res
	}

	out := *res
	out.Meta = maps.Clone(res.Meta)
	if out.Meta == nil {
		out.Meta = mcp.Meta{}
	}
	out.Meta[resilience.MetaError] = e
	return &out
}

// forClient returns the result, if it is a failure without the secrets in the text of its content.
func (a answer) forClient(g *resilience.Guard) *mcp.CallToolResult {
	res := a.result
	if res == nil || !res.IsError || a.needsInput {
		return res
	}

	var content []mcp.Content
	for i, c := range res.Content {
		t, _ := c.(*mcp.TextContent)
		if t == nil {
			continue
		}
		text := g.Scrub(t.Text)
		if text == t.Text {
			continue
		}
		if content == nil {
			content = slices.Clone(res.Content)
		}
		clean := *t
		clean.Text = text
		content[i] = &clean
	}
	if content == nil {
		return res
	}

	out := *res
	out.Content = content
	return &out
}

// scrubbedWords returns e, or a copy of it, without the secrets in the words of the tool's author. It may be nil.
func scrubbedWords(g *resilience.Guard, e *resilience.Error) *resilience.Error {
	if e == nil {
		return nil
	}

	message, suggestion := g.Scrub(e.Message), g.Scrub(e.Suggestion)
	if message == e.Message && suggestion == e.Suggestion {
		return e
	}
	clean := *e
	clean.Message, clean.Suggestion = message, suggestion
	return &clean
}

// errorResult returns the result of a call that ended with e and without a result of the tool's own.
func errorResult(e *resilience.Error, protocol string, structured bool) *mcp.CallToolResult {
	res := &mcp.CallToolResult{}
	if protocol >= protocolStateless || protocol == "" {
		// The protocol requires the field resultType, which only unmarshaling can set.
		_ = json.Unmarshal([]byte(`{"content":[],"resultType":"complete"}`), res)
	}

	text, _ := json.Marshal(e) // it can't fail
	res.IsError = true
	res.Content = []mcp.Content{&mcp.TextContent{Text: string(text)}}
	res.Meta = mcp.Meta{resilience.MetaError: e}
	if structured {
		res.StructuredContent = e
	}
	return res
}
