package gosdk

import (
	"context"
	"math"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// calls are the calls under way of one server.
type calls struct {
	byToken sync.Map // token → *reports; a tool may report without its call's context
}

type token struct {
	session mcp.Session
	token   any
}

// tokenOf leaves out tokens that MCP doesn't allow, which may not even be comparable.
func tokenOf(session mcp.Session, t any) token {
	switch t.(type) {
	case string, int, int64, float64:
		return token{session, t}
	}
	return token{session, nil}
}

// reports is what one call has told its client.
type reports struct {
	calls *calls
	key   token // its token is nil if the client doesn't want to hear of progress

	mu    sync.Mutex
	ctx   context.Context // of the attempt under way
	sent  bool
	last  float64
	asked bool
	over  bool
}

type reportsKey struct{}

// begin is for a nil *calls too: then nobody watches.
func (c *calls) begin(ctx context.Context, req *mcp.CallToolRequest) (context.Context, *reports) {
	if c == nil {
		return ctx, nil
	}
	r := &reports{calls: c, key: tokenOf(req.Session, req.Params.GetProgressToken())}
	if r.key.token != nil {
		c.byToken.Store(r.key, r)
	}
	return context.WithValue(ctx, reportsKey{}, r), r
}

// attempt notes the context whose limit progress restarts.
func (r *reports) attempt(ctx context.Context) {
	if r != nil {
		r.mu.Lock()
		r.ctx = ctx
		r.mu.Unlock()
	}
}

// hasAsked reports whether the tool has asked its user something: to try again would
// ask again.
func (r *reports) hasAsked() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func (r *reports) end() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	if r.key.token != nil {
		r.calls.byToken.CompareAndDelete(r.key, r)
	}
}

// watch is sending middleware. A progress notification of a call under way restarts its
// limit. It is sent only if it says more than those before: after a retry a tool begins
// at the beginning, and MCP wants progress to increase. And while the user is asked
// something, which the SDK also does by itself for clients of older protocols, the clock
// stands.
func (c *calls) watch(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "elicitation/create" {
			if r, ok := ctx.Value(reportsKey{}).(*reports); ok {
				r.mu.Lock()
				r.asked = true
				r.mu.Unlock()
				defer resilience.Pause(ctx)()
			}
			return next(ctx, method, req)
		}
		note, ok := req.GetParams().(*mcp.ProgressNotificationParams)
		if !ok || note == nil {
			return next(ctx, method, req)
		}
		if r := c.find(ctx, tokenOf(req.GetSession(), note.ProgressToken)); r != nil && !r.advance(note.Progress) {
			return nil, nil
		}
		return next(ctx, method, req)
	}
}

func (c *calls) find(ctx context.Context, key token) *reports {
	if key.token == nil {
		return nil
	}
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
		resilience.ReportProgress(r.ctx)
	}
	if math.IsNaN(progress) || r.sent && progress <= r.last {
		return false
	}
	r.sent, r.last = true, progress
	return true
}
