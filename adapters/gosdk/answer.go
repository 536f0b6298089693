package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// An answer is what one attempt returned, which stands, whatever the guard makes of it. It is made
// within the attempt, because that calls methods of the tool's errors, which may panic. A tool that
// returned neither a result nor an error, or a *resilience.Error, leaves the answer to the guard: then
// the answer is empty.
type answer struct {
	result     *mcp.CallToolResult
	needsInput bool  // the result requests input from the user, so it is neither a success nor a failure
	err        error // becomes a protocol error
}

var errNoResult = errors.New("the tool returned neither a result nor an error")

// answerOfResult returns the answer and the error for the guard that a result stands for.
func answerOfResult(res *mcp.CallToolResult, failure func(*mcp.CallToolResult) error) (answer, error) {
	switch {
	case res == nil:
		return answer{}, resilience.MarkPermanent(errNoResult)
	case res.InputRequests != nil:
		return answer{result: res, needsInput: true}, resilience.ErrUnfinished
	case res.IsError:
		return answer{result: res}, failure(res)
	}
	return answer{result: res}, nil
}

// answerOfError returns the answer and the error for the guard that a handler's error stands for.
func answerOfError(ctx context.Context, err error) (answer, error) {
	var own *resilience.Error
	if !isBounded(err) || errors.As(err, &own) || timedOut(ctx, err) {
		return answer{}, err
	}
	return answer{err: err}, markProtocolError(err)
}

// markProtocolError marks err if it is a protocol error, which isn't retried, and which counts unless it
// says that the request is wrong. It returns any other error as it is.
func markProtocolError(err error) error {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		return err
	}

	switch wire.Code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeParseError,
		-32002: // a resource wasn't found, in older protocols
		return resilience.MarkInvalid(err)
	}
	return resilience.MarkPermanent(err)
}

// timedOut reports whether err says no more than that the timeout of ctx, a guarded call's, has passed.
func timedOut(ctx context.Context, err error) bool {
	end, ok := context.Cause(ctx).(*resilience.Error)
	return ok && end.Code == resilience.CodeTimeout && isBounded(err) && errors.Is(err, context.DeadlineExceeded)
}

// isBounded reports whether errors.As and errors.Is come to an end with err: a tool's error may wrap
// itself. The resilience package looks at a bounded number of errors, and replaces an error that wraps
// more than those.
func isBounded(err error) bool {
	_, kept := resilience.AsError("", examined{err}).Err.(examined)
	return kept
}

type examined struct{ error }

func (e examined) Unwrap() error { return e.error }

// withErrorMetadata returns a copy of a tool's own result with e in its _meta.
func withErrorMetadata(res *mcp.CallToolResult, e *resilience.Error) *mcp.CallToolResult {
	out := *res
	out.Meta = maps.Clone(res.Meta)
	if out.Meta == nil {
		out.Meta = mcp.Meta{}
	}
	out.Meta[resilience.MetaError] = e
	return &out
}

// errorResult returns the result of a call that ended with e and without a result of the tool's own.
func errorResult(e *resilience.Error, protocol string, structured bool) *mcp.CallToolResult {
	res := &mcp.CallToolResult{}
	if protocol >= "2026-07-28" || protocol == "" {
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
