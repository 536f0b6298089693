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
	errNotFinite = errors.New("resilience: mcpgo: progress is not a finite number")
	errNoServer  = errors.New("resilience: mcpgo: the context is not that of a request")
)

// NotifyProgress notifies the client of how far a call has come. It takes the context and the
// request that the handler received, or ones derived from them. A total that isn't positive is
// unknown, and an empty message is left out.
//
// NotifyProgress also restarts the call's timeout, as resilience.ReportProgress does, even if
// the client didn't ask for progress.
//
// MCP requires progress to increase, but a tool that is retried starts at the beginning. A
// value that isn't higher than those that were sent for the request before is therefore not
// sent. Nor is anything sent after the call has been answered. Neither is an error. An error
// means that the client can't be reached, or that progress or total isn't a finite number.
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
		return s.SendNotificationToClient(ctx, "notifications/progress", params)
	}
	if r, ok := ctx.Value(reporterKey{}).(*reporter); ok {
		return r.advance(progress, send)
	}
	return send() // the handler runs without a guard
}

func wantsProgress(req mcp.CallToolRequest) bool {
	return req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// requestProgress is the progress of one request.
type requestProgress struct {
	meta *mcp.Meta // identifies the request

	mu      sync.Mutex
	highest float64 // the highest value that was sent
}

// latestProgress keeps the progress of the latest request. A tool that asked for elicitation
// is called again for the same request, and must not fall behind what it has sent.
type latestProgress struct {
	mu     sync.Mutex
	latest *requestProgress
}

func (l *latestProgress) of(meta *mcp.Meta) *requestProgress {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.latest == nil || l.latest.meta != meta {
		l.latest = &requestProgress{meta: meta, highest: math.Inf(-1)}
	}
	return l.latest
}

// A reporter sends the progress of one call.
type reporter struct {
	request *requestProgress
	stopped bool // guarded by request.mu
}

type reporterKey struct{}

// withReporter returns a context with a reporter. The reporter is nil if the client didn't ask
// for progress.
func (h *handler) withReporter(ctx context.Context, req mcp.CallToolRequest) (context.Context, *reporter) {
	if !wantsProgress(req) {
		return ctx, nil
	}

	r := &reporter{request: h.progress.of(req.Params.Meta)}
	return context.WithValue(ctx, reporterKey{}, r), r
}

// stop prevents any further progress from being sent. r may be nil.
func (r *reporter) stop() {
	if r == nil {
		return
	}

	r.request.mu.Lock()
	defer r.request.mu.Unlock()
	r.stopped = true
}

// advance calls send if progress is higher than before. It does so under the lock, which keeps
// the notifications in order. That is safe because mcp-go only puts them into a queue, and
// fails instead of waiting if the queue is full.
func (r *reporter) advance(progress float64, send func() error) error {
	r.request.mu.Lock()
	defer r.request.mu.Unlock()
	if r.stopped || progress <= r.request.highest {
		return nil
	}

	if err := send(); err != nil {
		return err
	}
	r.request.highest = progress
	return nil
}
