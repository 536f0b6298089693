package gosdk

import (
	"context"
	"math"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// heartbeat is the default of [Heartbeat].
const heartbeat = 15 * time.Second

// Heartbeat sets how often [Protect] tells the client of a call that it still runs, if the client asked for progress.
// Clients that restart their timeout on progress then wait for as long as the guard does. The first progress of the
// tool itself ends the heartbeats. They are progress notifications below zero, with values that increase, which leaves
// room for the tool's own. They don't restart the tool's timeout. Zero means 15s, and negative never. Elsewhere than in
// [Protect] the option does nothing.
func Heartbeat(every time.Duration) Option { return func(o *options) { o.heartbeat = every } }

// beat sends heartbeats until stop is called. The context is that of the request.
func (p *progress) beat(ctx context.Context, req *mcp.CallToolRequest, every time.Duration) (stop func()) {
	if p.token == nil || req.Session == nil || every < 0 {
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
			if p.isReported() {
				return
			}
			note := &mcp.ProgressNotificationParams{ProgressToken: p.token, Progress: -1 / n}
			_ = req.Session.NotifyProgress(ctx, note) // a client that is gone needs no heartbeat
		}
	}()
	return stop
}

// isReported reports whether the tool has reported progress itself.
func (p *progress) isReported() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !math.IsInf(p.highest, -1)
}
