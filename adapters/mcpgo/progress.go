package mcpgo

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
)

// NotifyProgress tells the client how far the call of req has come: ctx and req are those
// that the handler was called with, or made from them. A total of 0 isn't known, and an
// empty message is left out. It restarts the limit of the call, as resilience.Progress
// does, whether or not the client wants to hear of progress.
//
// What says no more than an earlier notification isn't sent: after a retry a tool begins
// at the beginning, and MCP wants progress to increase. Nor is anything sent once the
// call has been answered. Both are no error; that the client can't be reached is one, and
// so is a number that JSON doesn't have.
func NotifyProgress(ctx context.Context, req mcp.CallToolRequest, progress, total float64, message string) error {
	resilience.Progress(ctx)
	if req.Params.Meta == nil || req.Params.Meta.ProgressToken == nil {
		return nil
	}
	if !finite(progress) || !finite(total) {
		return errNotFinite
	}
	params := map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": progress}
	if total > 0 {
		params["total"] = total
	}
	if message != "" {
		params["message"] = message
	}
	send := func() error {
		s := server.ServerFromContext(ctx)
		if s == nil {
			return errNoServer
		}
		return s.SendNotificationToClient(ctx, "notifications/progress", params)
	}
	if told, ok := ctx.Value(reportsKey{}).(*reports); ok {
		return told.advance(progress, send)
	}
	return send() // it doesn't run under a guard
}

var (
	errNotFinite = errors.New("resilience: mcpgo: progress is not a finite number")
	errNoServer  = errors.New("resilience: mcpgo: the context is not that of a request")
)

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// A height is how far a request's progress has come.
type height struct {
	meta *mcp.Meta // tells requests apart

	mu   sync.Mutex
	last float64
}

// heights remembers the height of the latest request. A tool that has asked its user
// something is called again for the same request.
type heights struct {
	mu     sync.Mutex
	latest *height
}

func (h *heights) of(meta *mcp.Meta) *height {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest == nil || h.latest.meta != meta {
		h.latest = &height{meta: meta, last: math.Inf(-1)}
	}
	return h.latest
}

// reports is what one call tells its client.
type reports struct {
	height *height
	over   bool // under height's lock
}

type reportsKey struct{}

// begin returns nil for a client that doesn't want to hear of progress.
func (h *handler) begin(ctx context.Context, req mcp.CallToolRequest) (context.Context, *reports) {
	if req.Params.Meta == nil || req.Params.Meta.ProgressToken == nil {
		return ctx, nil
	}
	told := &reports{height: h.heights.of(req.Params.Meta)}
	return context.WithValue(ctx, reportsKey{}, told), told
}

func (r *reports) end() {
	if r == nil {
		return
	}
	r.height.mu.Lock()
	defer r.height.mu.Unlock()
	r.over = true
}

// advance sends under the lock, so that what is sent is in order: mcp-go only puts it
// into a queue, and never waits for that.
func (r *reports) advance(progress float64, send func() error) error {
	r.height.mu.Lock()
	defer r.height.mu.Unlock()
	if r.over || progress <= r.height.last {
		return nil
	}
	if err := send(); err != nil {
		return err
	}
	r.height.last = progress
	return nil
}
