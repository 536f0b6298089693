package gosdk

import (
	"context"
	"math"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A tracker relates what the tools of a server send to the calls that they belong to. A nil tracker
// tracks nothing. It is safe for concurrent use.
type tracker struct {
	// byToken finds a call by its progress token, because a tool may send progress without the
	// context of its call. It maps a progressToken to a *trackedCall.
	byToken sync.Map
}

// A progressToken identifies a call whose client wants progress notifications.
type progressToken struct {
	session mcp.Session
	value   any // nil if there is no token
}

// newProgressToken ignores a value of a type that MCP doesn't allow, which may not even be comparable.
func newProgressToken(session mcp.Session, value any) progressToken {
	switch value.(type) {
	case string, int, int64, float64:
		return progressToken{session, value}
	}
	return progressToken{session, nil}
}

// A trackedCall is a call that is under way. A nil trackedCall is one that isn't tracked.
type trackedCall struct {
	tracker *tracker
	token   progressToken

	mu       sync.Mutex
	attempt  context.Context // of the current attempt
	sent     bool            // whether progress was sent
	progress float64         // that was sent last
	ended    bool
}

type trackedCallKey struct{}

// track returns the tracked call of req, and ctx with that call in it. The caller must end the call.
func (t *tracker) track(ctx context.Context, req *mcp.CallToolRequest) (context.Context, *trackedCall) {
	if t == nil {
		return ctx, nil
	}

	c := &trackedCall{tracker: t, token: newProgressToken(req.Session, req.Params.GetProgressToken())}
	if c.token.value != nil {
		t.byToken.Store(c.token, c)
	}
	return context.WithValue(ctx, trackedCallKey{}, c), c
}

// beginAttempt sets the context whose timeout is restarted by progress.
func (c *trackedCall) beginAttempt(ctx context.Context) {
	if c != nil {
		c.mu.Lock()
		c.attempt = ctx
		c.mu.Unlock()
	}
}

// current returns the context of the current attempt, or nil if there is none.
func (c *trackedCall) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	return c.attempt
}

func (c *trackedCall) end() {
	if c == nil {
		return
	}

	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()

	if c.token.value != nil {
		c.tracker.byToken.CompareAndDelete(c.token, c)
	}
}

// middleware is sending middleware. It restarts the timeout of a call for each of its progress
// notifications, and drops those that would let its progress decrease. It pauses the timeout during
// an elicitation, including those that the SDK makes for clients of older protocols.
func (t *tracker) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == methodElicit {
			if ctx.Err() != nil { // an attempt that was abandoned: the next one may ask the same
				return nil, ctx.Err()
			}
			defer resilience.Pause(ctx)() // the guard doesn't retry a call that has been paused
			return next(ctx, method, req)
		}

		note, ok := req.GetParams().(*mcp.ProgressNotificationParams)
		if !ok || note == nil {
			return next(ctx, method, req)
		}

		c := t.find(ctx, newProgressToken(req.GetSession(), note.ProgressToken))
		if c != nil && !c.advance(note.Progress) {
			return nil, nil
		}
		return next(ctx, method, req)
	}
}

// find returns the call that has the token, or nil. It looks at ctx first, which is certain even if
// a client uses a token twice.
func (t *tracker) find(ctx context.Context, token progressToken) *trackedCall {
	if token.value == nil {
		return nil
	}
	if c, ok := ctx.Value(trackedCallKey{}).(*trackedCall); ok && c.token == token {
		return c
	}
	if c, ok := t.byToken.Load(token); ok {
		return c.(*trackedCall)
	}
	return nil
}

// advance restarts the timeout of the call, and reports whether the notification may be sent: MCP
// requires that progress increases, which it doesn't when a retry starts over, and that it stops with
// the result.
func (c *trackedCall) advance(progress float64) bool {
	if attempt := c.current(); attempt != nil {
		resilience.ReportProgress(attempt) // without the lock: it asks the contexts of middleware
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	if math.IsNaN(progress) || c.sent && progress <= c.progress {
		return false
	}
	c.sent, c.progress = true, progress
	return true
}
