package gosdk

import (
	"errors"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// An Option configures a middleware.
type Option func(*options)

type options struct {
	failure      func(*mcp.CallToolResult) error
	allowDebug   bool
	allowTimeout bool
	tools        *directory // nil: each server has its own
}

func newOptions(failure func(*mcp.CallToolResult) error, opts []Option) options {
	o := options{failure: failure}
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	return o
}

// Failure sets the function that decides what a result with isError means. It returns the error that
// the result stands for, which may be marked by resilience.MarkInvalid and the like, or nil if the
// tool hasn't failed. It may look at res.GetError, which returns the error of a typed handler.
//
// f is called once for each attempt that ends with such a result, possibly concurrently, and must not
// change the result. If f is nil, the option does nothing. By default, the result stands for its
// GetError or, if that is nil, for a transient failure.
func Failure(f func(res *mcp.CallToolResult) error) Option {
	return func(o *options) {
		if f != nil {
			o.failure = f
		}
	}
}

// AllowDebug allows clients to turn debug on for a request, by [resilience.MetaDebug].
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

var errResult = errors.New("the tool returned a result with isError")

// defaultFailure is the default of Failure for a server.
func defaultFailure(res *mcp.CallToolResult) error {
	err := res.GetError()
	switch {
	case err == nil:
		return errResult
	case strings.HasPrefix(err.Error(), `validating "arguments": `):
		return resilience.MarkInvalid(err) // only the SDK's text identifies this error
	}
	return err
}
