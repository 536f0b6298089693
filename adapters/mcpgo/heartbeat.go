package mcpgo

import (
	"context"
	"math"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// heartbeat is the default of [Heartbeat].
const heartbeat = 15 * time.Second

// Heartbeat sets how often a server tells the client of a call that it still runs, if the client asked for progress.
// Clients that restart their timeout on progress then wait for as long as the guard does. The first progress of the
// tool itself, by [NotifyProgress], ends the heartbeats. They are progress notifications below zero, with values that
// increase, which leaves room for the tool's own. They don't restart the tool's timeout. Zero means 15s, and negative
// never.
func Heartbeat(every time.Duration) Option { return func(o *options) { o.heartbeat = every } }

// beat sends heartbeats until stop is called. The context is that of the request.
func (c *callProgress) beat(ctx context.Context, req mcp.CallToolRequest, every time.Duration) (stop func()) {
	s := server.ServerFromContext(ctx)
	if c == nil || s == nil || every < 0 {
		return func() {}
	}

	ctx, stop = context.WithCancel(ctx)
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for n := 1.0; ; n++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if c.isReported() {
				return
			}
			params := map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": -1 / n}
			_ = s.SendNotificationToClient(ctx, "notifications/progress", params) // one that is gone needs none
		}
	}()
	return stop
}

// isReported reports whether the tool has reported progress itself.
func (c *callProgress) isReported() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !math.IsInf(c.sent, -1)
}
