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

var (
	errNotFinite = resilience.MarkNeutral(errors.New("resilience: mcpgo: progress is not a finite number"))
	errNoServer  = resilience.MarkNeutral(errors.New("resilience: mcpgo: the context is not that of a request"))
)

// NotifyProgress notifies the client of how far a call has come. It takes the context and the
// request that the handler received, or ones derived from them. A total that isn't positive is
// unknown, and an empty message is left out.
//
// NotifyProgress also restarts the call's timeout, as resilience.ReportProgress does, even if
// the client didn't ask for progress.
//
// MCP requires progress to increase, but a tool that is retried starts at the beginning. A value
// that isn't higher than what earlier attempts have sent is therefore not sent again. Nor is what
// an abandoned tool reports. Neither is an error. All else is sent as it is. An error means that
// the client can't be reached, or that progress or total isn't a finite number, which says nothing about the tool's
// backend (see resilience.MarkNeutral).
func NotifyProgress(ctx context.Context, req mcp.CallToolRequest, progress, total float64, message string) error {
	resilience.ReportProgress(ctx)
	if !wantsProgress(req) {
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
		return resilience.MarkNeutral(s.SendNotificationToClient(ctx, "notifications/progress", params))
	}
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a.advance(progress, send)
	}
	return send() // the handler runs without a guard
}

func wantsProgress(req mcp.CallToolRequest) bool {
	return req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// callProgress is the progress of one call. A nil callProgress is that of a call whose client doesn't
// want any.
type callProgress struct {
	mu       sync.Mutex
	latest   *attempt
	sent     float64 // the highest progress that was sent
	repeated float64 // the highest that earlier attempts have sent
	answered bool
}

// An attempt is one of a call, which a tool may go on with when nobody waits for it any more.
type attempt struct {
	call     *callProgress
	returned bool // guarded by call.mu
}

type attemptKey struct{}

func newCallProgress(req mcp.CallToolRequest) *callProgress {
	if !wantsProgress(req) {
		return nil
	}
	return &callProgress{sent: math.Inf(-1), repeated: math.Inf(-1)}
}

// begin begins an attempt with the context ctx. It returns the context for the tool, and what to
// call when the tool has returned.
func (c *callProgress) begin(ctx context.Context) (_ context.Context, returned func()) {
	if c == nil {
		return ctx, func() {}
	}

	a := &attempt{call: c}
	c.mu.Lock()
	c.latest, c.repeated = a, c.sent
	c.mu.Unlock()

	return context.WithValue(ctx, attemptKey{}, a), func() {
		c.mu.Lock()
		a.returned = true
		c.mu.Unlock()
	}
}

// end says that the call has been answered.
func (c *callProgress) end() {
	if c == nil {
		return
	}

	c.mu.Lock()
	c.answered = true
	c.mu.Unlock()
}

// advance sends progress unless it belongs to an abandoned attempt, or was sent by an earlier one.
func (a *attempt) advance(progress float64, send func() error) error {
	if a.isWithheld(progress) {
		return nil
	}
	if err := send(); err != nil {
		return err
	}

	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.call.sent = max(a.call.sent, progress)
	return nil
}

func (a *attempt) isWithheld(progress float64) bool {
	c := a.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered {
		return !a.returned
	}
	return a != c.latest || progress <= c.repeated
}
