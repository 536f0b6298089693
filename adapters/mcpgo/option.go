package mcpgo

import (
	"context"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
)

// An Option configures a [Middleware].
type Option func(*options)

type options struct {
	failure      FailureFunc
	breakerKey   func(context.Context, mcp.CallToolRequest) string // may be nil
	hideErrors   bool
	allowDebug   bool
	allowTimeout bool
	heartbeat    time.Duration
}

// A FailureFunc decides what a result with isError means. It returns the error that the result
// stands for, or nil if the tool hasn't failed. The error is judged like any other: by its mark, such
// as resilience.MarkBackend, by its type, and by what the backend has said during the attempt. Where
// nothing tells, it is neither counted nor retried.
//
// It is called once for each attempt that ends with such a result, possibly concurrently, with the
// context of the attempt, and must not change the request or the result. If it panics, the result means
// what it would without the FailureFunc.
type FailureFunc func(ctx context.Context, req mcp.CallToolRequest, res *mcp.CallToolResult) error

// Failure replaces [CountKnown] as the function that decides what a result with isError means. If f
// is nil, the option does nothing.
func Failure(f FailureFunc) Option {
	return func(o *options) {
		if f != nil {
			o.failure = orElse(f, o.failure)
		}
	}
}

// orElse returns a FailureFunc that asks f, and other if f panics.
func orElse(f, other FailureFunc) FailureFunc {
	return func(ctx context.Context, req mcp.CallToolRequest, res *mcp.CallToolResult) (err error) {
		defer func() {
			if recover() != nil {
				err = other(ctx, req, res)
			}
		}()
		return f(ctx, req, res)
	}
}

// CountKnown is the default of [Failure]: a result stands for the error that was set by [SetError] or, without one, for
// the error that its text means, see [resilience.ResultError]. mcp-go's own complaints about arguments are the caller's
// mistake, after other words and a colon, too.
func CountKnown(_ context.Context, _ mcp.CallToolRequest, res *mcp.CallToolResult) error {
	return markArguments(errorOf(res))
}

// CountAll is a [FailureFunc] by which every result with isError is a failure of the backend, unless
// the error that was set by [SetError] says otherwise, or it is one of mcp-go's own complaints about arguments. What
// BindArguments returns isn't known for one, since it reads like an error of any JSON: mark it by
// resilience.MarkInvalid.
func CountAll(ctx context.Context, req mcp.CallToolRequest, res *mcp.CallToolResult) error {
	err := CountKnown(ctx, req, res)
	if resilience.Classify(err) != resilience.ClassTransient {
		return err
	}
	return resilience.MarkBackend(err)
}

// CountErrors is a [FailureFunc] by which errors that were set by [SetError] are failures of the
// backend, unless they say otherwise, and other results with isError mean nothing.
func CountErrors(ctx context.Context, req mcp.CallToolRequest, res *mcp.CallToolResult) error {
	if setError(res) == nil {
		return resilience.MarkNeutral(errorOf(res))
	}
	return CountAll(ctx, req, res)
}

// CountNone is a [FailureFunc] by which no result with isError is a failure of the backend.
func CountNone(_ context.Context, _ mcp.CallToolRequest, res *mcp.CallToolResult) error {
	return resilience.MarkNeutral(errorOf(res))
}

// HideErrors keeps the text of Go errors from clients: where a handler returns an error, or a result
// with one that was set by [SetError], the answer is the guard's own, and says what happened in its
// words. mcp.URLElicitationRequiredError still reaches the client.
func HideErrors() Option { return func(o *options) { o.hideErrors = true } }

// BreakerKey gives the calls for which f returns the same key a breaker of their own, for tools that stand before
// several backends, such as data sources or tenants; see [resilience.BreakerKey]. It must not be a secret. "" means
// the tool's own breaker, and so does a panic. f may be called concurrently, before the handler. It must not block,
// change the request, or call runtime.Goexit, which would end mcp-go's goroutine: the call would never be answered. If
// f is nil, the option does nothing.
func BreakerKey(f func(ctx context.Context, req mcp.CallToolRequest) string) Option {
	return func(o *options) {
		if f != nil {
			o.breakerKey = f
		}
	}
}

// AllowDebug allows clients to turn debug on for a request, by [resilience.MetaDebug]. They then read the causes of
// errors, also with HideErrors, and the redacted arguments. Only the secrets that [resilience.Guard.Scrub] finds are
// taken out of a cause: where clients aren't trusted, leave it out.
func AllowDebug() Option { return func(o *options) { o.allowDebug = true } }

// AllowTimeout allows clients to set the timeout of a request, by resilience.MetaTimeout. That
// timeout never exceeds the tool's own maximum.
func AllowTimeout() Option { return func(o *options) { o.allowTimeout = true } }
