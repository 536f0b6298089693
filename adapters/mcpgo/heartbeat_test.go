package mcpgo_test

import (
	"context"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
)

// A heartbeat goes on until the tool reports progress, or ends, and leaves its timeout alone.
func TestHeartbeat(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    []mcpgo.Option
		token   any
		reports time.Duration // when the tool reports 0 and 1; never if zero
		takes   time.Duration
		want    []float64
	}{
		"every 15 seconds":       {token: "p", takes: 50 * time.Second, want: []float64{-1, -0.5, -1. / 3}},
		"by the option":          {[]mcpgo.Option{mcpgo.Heartbeat(time.Minute / 2)}, "p", 0, 50 * time.Second, []float64{-1}},
		"off":                    {opts: []mcpgo.Option{mcpgo.Heartbeat(-1)}, token: "p", takes: 50 * time.Second},
		"without a token":        {takes: 50 * time.Second},
		"until the tool reports": {token: "p", reports: 20 * time.Second, takes: 50 * time.Second, want: []float64{-1, 0, 1}},
		"not beyond the timeout": {token: "p", takes: time.Hour, want: []float64{-1, -0.5, -1. / 3}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s := newServer(newGuard(t, onlyX(resilience.Tool{Timeout: 55 * time.Second})), tc.opts...)
			s.AddTool(mcp.NewTool("x"), func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				time.Sleep(tc.reports)
				if tc.reports > 0 {
					report(ctx, t, req, 0, 1)
				}
				time.Sleep(tc.takes - tc.reports)
				return done, nil
			})
			c := connect(t, s)
			received := collectProgress(c)
			var meta map[string]any
			if tc.token != nil {
				meta = withToken(tc.token)
			}
			callTool(t, c, "x", nil, meta)
			time.Sleep(2 * time.Hour)
			assert.Equal(t, tc.want, values(received()))
		})
	}
}
