package gosdk

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// An Option configures a middleware.
type Option func(*options)

type options struct {
	failure      FailureFunc
	breakerKey   func(context.Context, mcp.Request) string // may be nil
	hideErrors   bool
	allowDebug   bool
	allowTimeout bool
	tools        *directory // nil: each server has its own
}

func newOptions(failure FailureFunc, opts []Option) options {
	o := options{failure: failure}
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	return o
}

// A FailureFunc decides what a result with isError means. It returns the error that the result stands
// for, or nil if the tool hasn't failed. The error is judged like any other: by its mark, such as
// resilience.MarkBackend, by its type, and by what the backend has said during the attempt. Where nothing
// tells, it is neither counted nor retried.
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

// CountKnown is the default of [Failure]: a result stands for its GetError or, without one, for an error of which
// nothing is known. What the SDK says of arguments is the caller's mistake, and what it says of a client that a tool
// can't ask, or that answers badly, says nothing of the backend, whether the handler wraps it or not. If the handler
// joins it with another error, that one decides.
func CountKnown(_ context.Context, req mcp.Request, res *mcp.CallToolResult) error {
	err := res.GetError()
	switch {
	case err == nil:
		return errorOf(res)
	case isAboutArguments(req, err):
		return resilience.MarkInvalid(err)
	}
	return markClientError(err)
}

// hasGoError reports whether the text of a result of req is that of a handler's error.
func hasGoError(req mcp.Request, res *mcp.CallToolResult) bool {
	err := res.GetError()
	return err != nil && !isAboutArguments(req, err)
}

// CountAll is a [FailureFunc] by which every result with isError is a failure of the backend, unless its
// GetError says otherwise.
func CountAll(ctx context.Context, req mcp.Request, res *mcp.CallToolResult) error {
	if err := CountKnown(ctx, req, res); resilience.Classify(err) != resilience.ClassTransient {
		return err
	}
	return resilience.MarkBackend(errorOf(res))
}

// CountErrors is a [FailureFunc] by which the Go errors of typed handlers, and those set by SetError, are
// failures of the backend, unless they say otherwise, and other results with isError mean nothing.
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

// HideErrors keeps the text of Go errors from clients: where a handler returns an error, or a result that
// stands for one by its GetError, the answer is the guard's own, and says what happened in its words. A
// *jsonrpc.Error still reaches the client, but of one that is wrapped only the code and the message do, and nothing
// from a handler of mcp.AddTool, where it is a Go error like any other.
//
// What the SDK says of arguments reaches the client, too: that they violate the schema or don't fit the Go
// type. What an UnmarshalJSON or UnmarshalText method says is a Go error, unless it is of the standard library.
func HideErrors() Option { return func(o *options) { o.hideErrors = true } }

// BreakerKey gives the calls for which f returns the same key a breaker of their own, for tools that stand before
// several backends, such as data sources or tenants; see [resilience.BreakerKey]. It must not be a secret. "" means
// the tool's own breaker, and so does a panic. f may be called concurrently, before the handler or, in a client,
// before the request is sent. It must not block, change the request, which is a *mcp.CallToolRequest in a server, or
// call runtime.Goexit, which would end the SDK's goroutine: the call would never be answered. If f is nil, the option
// does nothing.
func BreakerKey(f func(ctx context.Context, req mcp.Request) string) Option {
	return func(o *options) {
		if f != nil {
			o.breakerKey = f
		}
	}
}

// breakerKeyOf returns a function that returns the key of req, nil if requests have none.
func (o *options) breakerKeyOf(ctx context.Context, req mcp.Request) func() string {
	if f := o.breakerKey; f != nil {
		return func() string { return f(ctx, req) }
	}
	return nil
}

// AllowDebug allows clients to turn debug on for a request, by [resilience.MetaDebug]. They then read the causes of
// errors, also with HideErrors, and the redacted arguments. Only the secrets that [resilience.Guard.Scrub]
// recognizes are taken out of a cause: where clients aren't trusted, leave it out.
func AllowDebug() Option { return func(o *options) { o.allowDebug = true } }

// AllowTimeout allows clients to choose the timeout of a request, by [resilience.MetaTimeout]. The
// tool's own maximum still bounds it.
func AllowTimeout() Option { return func(o *options) { o.allowTimeout = true } }

// ShareTools makes servers share what lists have said of their tools. It is for programs that make a server
// for each request, as stateless HTTP servers may: a server that lives for one call never sees a list.
// Call ShareTools once, and pass the option to each of these servers:
//
//	shared := gosdk.ShareTools()
//	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
//		server := newServer()
//		gosdk.Protect(server, guard, shared)
//		return server
//	}, &mcp.StreamableHTTPOptions{Stateless: true})
//
// If the annotations of a tool differ between these servers, those that a client has listed last apply
// to all of them. The option may be used concurrently.
func ShareTools() Option {
	d := &directory{}
	return func(o *options) { o.tools = d }
}

// maxErrorText bounds how much of a result's text an error repeats.
const maxErrorText = 1024

// errorOf returns the error of a result: its GetError, or one with the text of the result, for logs.
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
	text := strings.Join(texts, "\n")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return resultError(text)
}

// A resultError is a result with isError and nothing behind it but its text.
type resultError string

func (e resultError) Error() string {
	if e == "" {
		return "the tool returned a result with isError"
	}
	return string(e)
}
