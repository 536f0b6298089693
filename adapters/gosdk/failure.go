package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A FailureFunc decides what a result with isError means. It returns the error that the result stands
// for, or nil if the tool hasn't failed. The error is judged like any other: by its mark, such as
// resilience.MarkBackend, by its type, and by what the backend has reported during the attempt. If none of
// them tells, the failure is neither counted nor retried.
//
// It is called once for each attempt that ends with such a result, possibly concurrently, with the
// context of the attempt, and must not change the request or the result. It may look at res.GetError,
// which returns the error of a typed handler, or what a handler has set by res.SetError. If it panics, the
// result means what it would without the FailureFunc.
type FailureFunc func(ctx context.Context, req mcp.Request, res *mcp.CallToolResult) error

// Failure replaces [CountKnown] as the function that decides what a result with isError means. If f is
// nil, the option does nothing.
func Failure(f FailureFunc) Option {
	return func(o *options) {
		if f != nil {
			o.failure = orElse(f, o.failure)
		}
	}
}

// orElse returns a FailureFunc that asks f, and other if f panics.
func orElse(f, other FailureFunc) FailureFunc {
	return func(ctx context.Context, req mcp.Request, res *mcp.CallToolResult) (err error) {
		defer func() {
			if recover() != nil {
				err = other(ctx, req, res)
			}
		}()
		return f(ctx, req, res)
	}
}

// CountKnown is the default of [Failure]: a result stands for its GetError or, without one, for the error with which
// its text ends, see [resilience.ResultError]. The SDK's complaint about arguments is the caller's mistake.
func CountKnown(_ context.Context, _ mcp.Request, res *mcp.CallToolResult) error {
	err := errorOf(res)
	if isAboutArguments(err) {
		return resilience.MarkInvalid(err)
	}
	return err
}

// CountAll is a [FailureFunc] by which every result with isError is a failure of the backend, unless its
// GetError says otherwise, or is the SDK's complaint about a client that the tool can't ask.
func CountAll(ctx context.Context, req mcp.Request, res *mcp.CallToolResult) error {
	err := CountKnown(ctx, req, res)
	if resilience.Classify(err) != resilience.ClassTransient || isAboutClient(err) {
		return err
	}
	return resilience.MarkBackend(err)
}

// CountErrors is a [FailureFunc] by which the Go errors of typed handlers, and those set by SetError, are
// failures of the backend, as by [CountAll], and other results with isError mean nothing. An argument that the
// UnmarshalText or UnmarshalJSON method of its type rejects is such an error, too, unless the method marks it by
// [resilience.MarkInvalid].
func CountErrors(ctx context.Context, req mcp.Request, res *mcp.CallToolResult) error {
	if res.GetError() == nil {
		return resilience.MarkNeutral(errorOf(res))
	}
	return CountAll(ctx, req, res)
}

// CountNone is a [FailureFunc] by which no result with isError is a failure of the backend.
func CountNone(_ context.Context, _ mcp.Request, res *mcp.CallToolResult) error {
	return resilience.MarkNeutral(errorOf(res))
}

// errorOf returns the error of a result: its GetError, or what its text means.
func errorOf(res *mcp.CallToolResult) error {
	if err := res.GetError(); err != nil {
		return err
	}

	var texts []string
	for _, c := range res.Content {
		if t, _ := c.(*mcp.TextContent); t != nil {
			texts = append(texts, t.Text)
		}
	}
	return resilience.ResultError(strings.Join(texts, "\n"))
}

// answerOfResult returns the answer that a result is, and the error for the guard that it stands for.
func (o *options) answerOfResult(
	ctx context.Context, req mcp.Request, res *mcp.CallToolResult,
) (answer, error) {
	switch {
	case res == nil:
		return answer{}, errNoResult
	case res.InputRequests != nil, res.NeedsInput(): // without requests, the server is too busy for the call
		return answer{result: res, needsInput: true}, resilience.ErrUnfinished
	case res.IsError:
		err := res.GetError()
		return answer{result: res, goError: err != nil && !isAboutArguments(err)}, o.failure(ctx, req, res)
	}
	return answer{result: res}, nil
}

// answerOfError returns the answer that a handler's error is, and the error for the guard that it stands for.
func (o *options) answerOfError(err error) (answer, error) {
	var own *resilience.Error
	if errors.As(err, &own) {
		return answer{}, err
	}

	said := err
	var wire *jsonrpc.Error
	isProtocolError := errors.As(err, &wire)
	if _, direct := err.(*jsonrpc.Error); o.hideErrors && isProtocolError && !direct {
		said = &jsonrpc.Error{Code: wire.Code, Message: wire.Message} // without the words around it
	}
	return answer{err: newProtocolError(said), goError: !isProtocolError}, markProtocolError(err, err)
}

// markProtocolError marks err by the code of the protocol error in said: as the caller's mistake, or as unfinished if
// the client is to send its user to a page. Other codes mean nothing, because servers make internal errors of whatever
// a tool returns.
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

// isAboutArguments reports whether err is the SDK's complaint about the arguments of a call: that they violate the
// schema, which has only its text, or that they don't fit the Go type. Errors of the SDK's decoder have no offset.
// Those of encoding/json have one, and may be about the answer of a backend.
func isAboutArguments(err error) bool {
	mismatch, ok := err.(*json.UnmarshalTypeError)
	return ok && mismatch.Offset == 0 || strings.HasPrefix(err.Error(), `validating "arguments": `)
}

// clientTexts are the SDK's complaints about a client that a tool can't ask, or whose answer doesn't fit. They have
// neither a type nor a code.
var clientTexts = []string{
	`client does not support elicitation`,
	`client does not support "form" elicitation`,
	`client does not support "url" elicitation`,
	` cannot be sent while serving a request on protocol version `,
	`elicitation result content does not match requested schema: `,
}

func isAboutClient(err error) bool {
	said := err.Error()
	return slices.ContainsFunc(clientTexts, func(text string) bool { return strings.Contains(said, text) })
}
