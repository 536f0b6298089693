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

// NotifyProgress notifies the client of how far a call has come. It takes the context and the
// request that the handler received, or ones derived from them. A total that isn't positive is
// unknown, and an empty message is left out.
//
// NotifyProgress also restarts the call's timeout, as resilience.ReportProgress does, even if
// the client didn't ask for progress.
//
// MCP requires progress to increase and to stop with the result, but a tool that is retried starts at the
// beginning. A value that isn't higher than those of earlier attempts is therefore not sent, and neither is
// the progress of an abandoned attempt or of a call that has ended. That isn't an error. An error means that
// the client can't be reached, or that progress or total isn't a finite number. It doesn't count against the
// tool's backend (see resilience.MarkNeutral).
func NotifyProgress(ctx context.Context, req mcp.CallToolRequest, progress, total float64, message string) error {
	resilience.ReportProgress(ctx)
	if !wantsProgress(req) {
		return nil
	}
	if !finite(progress) || !finite(total) {
		return resilience.MarkNeutral(errors.New("resilience: mcpgo: progress is not a finite number"))
	}
	s := server.ServerFromContext(ctx)
	if s == nil {
		return resilience.MarkNeutral(errors.New("resilience: mcpgo: the context is not that of a request"))
	}
	if r, ok := ctx.Value(reporterKey{}).(*reporter); ok && !r.passes(progress) {
		return nil
	}

	params := map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": progress}
	if total > 0 {
		params["total"] = total
	}
	if message != "" {
		params["message"] = message
	}
	return resilience.MarkNeutral(s.SendNotificationToClient(ctx, "notifications/progress", params))
}

func wantsProgress(req mcp.CallToolRequest) bool {
	return req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// callProgress is the progress of one call. It is nil if the client doesn't want any.
type callProgress struct {
	mu     sync.Mutex
	latest *reporter // the only one that may send; nil once the call has ended
	sent   float64   // the highest value
}

// A reporter sends the progress of one attempt.
type reporter struct {
	call  *callProgress
	above float64 // what earlier attempts have sent
}

type reporterKey struct{}

func newProgress(req mcp.CallToolRequest) *callProgress {
	if !wantsProgress(req) {
		return nil
	}
	return &callProgress{sent: math.Inf(-1)}
}

// begin begins an attempt, and returns the context for the tool.
func (c *callProgress) begin(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = &reporter{c, c.sent}
	return context.WithValue(ctx, reporterKey{}, c.latest)
}

func (c *callProgress) end() {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.latest = nil
	}
}

// passes reports whether progress may be sent.
func (r *reporter) passes(progress float64) bool {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	if r != r.call.latest || progress <= r.above {
		return false
	}
	r.call.sent = max(r.call.sent, progress)
	return true
}
