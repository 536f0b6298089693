package gosdk

import (
	"cmp"
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An Option configures a middleware.
type Option func(*options)

type options struct {
	failure      FailureFunc
	breakerKey   func(context.Context, mcp.Request) string // may be nil
	hideErrors   bool
	allowDebug   bool
	allowTimeout bool
	heartbeat    time.Duration
}

func newOptions(failure FailureFunc, opts []Option) options {
	o := options{failure: failure}
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	o.heartbeat = cmp.Or(o.heartbeat, heartbeat)
	return o
}

// HideErrors keeps the text of Go errors from clients: where a handler returns an error, or a result that
// stands for one by its GetError, the answer is the guard's own, and says what happened in its words. A
// *jsonrpc.Error still reaches the client, but without the words of an error that wraps it, and from a handler of
// mcp.AddTool only if it isn't wrapped.
//
// The SDK's complaint about arguments reaches the client, too: that they violate the schema, or that a value has the
// wrong type for the Go type. What the UnmarshalJSON or UnmarshalText method of a type says, such as netip.Addr,
// is a Go error.
func HideErrors() Option { return func(o *options) { o.hideErrors = true } }

// BreakerKey gives the calls for which f returns the same key a breaker of their own, for tools that stand before
// several backends, such as data sources or tenants; see [resilience.BreakerKey]. It must not be a secret. "" means
// the tool's own breaker, and so does a panic. f may be called concurrently, before the handler or, in a client,
// before the request is sent. It must not block or change the request, which is a *mcp.CallToolRequest in a server. If
// f is nil, the option does nothing.
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
