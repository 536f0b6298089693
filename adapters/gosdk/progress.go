package gosdk

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// calls are the calls under way that a client wants to hear the progress of.
type calls struct {
	byToken sync.Map // token → *reports; a tool may send without its call's context
}

type token struct {
	session *mcp.ServerSession
	token   any
}

// reports is what has been reported of one call.
type reports struct {
	calls *calls
	key   token
	ctx   context.Context // of the attempt under way

	mu   sync.Mutex
	sent bool
	last float64
	over bool
}

type reportsKey struct{}

// begin is for a nil *calls too: then nobody watches.
func (c *calls) begin(ctx context.Context, req *mcp.CallToolRequest) (context.Context, *reports) {
	if c == nil {
		return ctx, nil
	}
	t := req.Params.GetProgressToken()
	if t == nil {
		return ctx, nil
	}
	r := &reports{calls: c, key: token{req.Session, t}}
	c.byToken.Store(r.key, r)
	return context.WithValue(ctx, reportsKey{}, r), r
}

// attemptBegins notes the context whose limit progress restarts.
func attemptBegins(ctx context.Context) {
	if r, ok := ctx.Value(reportsKey{}).(*reports); ok {
		r.mu.Lock()
		r.ctx = ctx
		r.mu.Unlock()
	}
}

func (r *reports) end() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.calls.byToken.CompareAndDelete(r.key, r)
}

// progress is sending middleware. A notification of a call under way restarts its
// limit. It is sent only if it says more than those before: after a retry a tool begins
// at the beginning, and MCP wants progress to increase.
func (c *calls) progress(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		note, ok := req.(*mcp.ServerRequest[*mcp.ProgressNotificationParams])
		if method != "notifications/progress" || !ok || note.Params == nil {
			return next(ctx, method, req)
		}
		r := c.find(ctx, note)
		if r == nil {
			return next(ctx, method, req)
		}
		if !r.advance(note.Params.Progress) {
			return nil, nil
		}
		return next(ctx, method, req)
	}
}

func (c *calls) find(ctx context.Context, note *mcp.ServerRequest[*mcp.ProgressNotificationParams]) *reports {
	key := token{note.Session, note.Params.ProgressToken}
	if r, ok := ctx.Value(reportsKey{}).(*reports); ok && r.key == key {
		return r
	}
	if r, ok := c.byToken.Load(key); ok {
		return r.(*reports)
	}
	return nil
}

// advance restarts the limit, and reports whether the notification is to be sent.
func (r *reports) advance(progress float64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false // MCP wants it to stop with the result
	}
	if r.ctx != nil {
		resilience.Progress(r.ctx)
	}
	if r.sent && progress <= r.last {
		return false
	}
	r.sent, r.last = true, progress
	return true
}
