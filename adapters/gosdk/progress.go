package gosdk

import (
	"context"
	"math"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A progress holds the progress of a call that its client has received.
type progress struct {
	token any // nil if the client wants none

	mu      sync.Mutex
	highest float64
}

func newProgress(req *mcp.CallToolRequest) *progress {
	return &progress{token: req.Params.GetProgressToken(), highest: math.Inf(-1)}
}

// An attempt is one attempt of a call. Its tool may still run after it was abandoned.
type attempt struct {
	*progress
	ctx      context.Context
	floor    float64 // the highest progress of earlier attempts
	returned atomic.Bool
}

// attemptKey is the key of the attempt in the context of its tool.
type attemptKey struct{}

// begin begins an attempt. It returns the context for the tool, and what to call when the tool has returned.
func (p *progress) begin(ctx context.Context) (_ context.Context, returned func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &attempt{progress: p, ctx: ctx, floor: p.highest}
	return context.WithValue(ctx, attemptKey{}, a), func() { a.returned.Store(true) }
}

// isAbandoned reports whether the attempt is over although its tool still runs.
func (a *attempt) isAbandoned() bool { return a.ctx.Err() != nil && !a.returned.Load() }

// advance reports whether a progress of the attempt is sent. MCP requires that progress increases, so an attempt
// doesn't repeat the progress of earlier ones. Within an attempt it is up to the tool.
func (a *attempt) advance(progress float64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if progress <= a.floor {
		return false
	}
	a.highest = max(a.highest, progress)
	return true
}

// toClient is sending middleware of a server. It acts on what a tool sends with the context of its call: progress
// restarts the timeout, a question to a person pauses it, and the errors of both, such as that the user hasn't answered
// in time or that the client is gone, are marked as neutral, since they aren't the backend's. An abandoned tool sends
// neither.
func toClient(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		a, _ := ctx.Value(attemptKey{}).(*attempt)
		if a == nil {
			return next(ctx, method, req)
		}

		note, isProgress := req.GetParams().(*mcp.ProgressNotificationParams)
		isProgress = isProgress && note != nil && reflect.DeepEqual(note.ProgressToken, a.token)
		isQuestion := asksPerson(method)
		if (isProgress || isQuestion) && a.isAbandoned() {
			return nil, resilience.MarkNeutral(a.ctx.Err())
		}
		if isProgress {
			resilience.ReportProgress(ctx)
			if !a.advance(note.Progress) {
				return nil, nil
			}
		}
		if isQuestion {
			defer resilience.Pause(ctx)() // the guard doesn't retry a call that has been paused
		}

		res, err := next(ctx, method, req)
		if _, direct := err.(*jsonrpc.Error); direct {
			return res, err // the SDK makes a protocol error of it if the tool returns it
		}
		return res, resilience.MarkNeutral(err)
	}
}

// asksPerson reports whether a client answers requests of the given method by asking its user, or at
// least for the user's approval.
func asksPerson(method string) bool {
	switch method {
	case "elicitation/create", "sampling/createMessage", "roots/list":
		return true
	}
	return false
}

// NotifyProgress notifies the client of how far a call has come, if it asked for that. It takes the
// context and the request that the handler received. A total that isn't positive is unknown, and an empty
// message is left out.
//
// It also restarts the call's timeout, as [resilience.ReportProgress] does. Behind [Protect] every notification
// does so. Errors are marked by [resilience.MarkNeutral]: they say nothing about the tool's backend.
func NotifyProgress(ctx context.Context, req *mcp.CallToolRequest, progress, total float64, message string) error {
	resilience.ReportProgress(ctx)
	token := req.Params.GetProgressToken()
	if token == nil || req.Session == nil {
		return nil
	}
	return resilience.MarkNeutral(req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: progress, Total: max(total, 0), Message: message,
	}))
}
