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
	const s = time.Second
	three := []float64{-1, -0.5, -1. / 3}
	for name, tc := range map[string]struct {
		every   time.Duration
		meta    map[string]any
		reports time.Duration // when the tool reports 0 and 1; never if zero
		takes   time.Duration
		want    []float64
	}{
		"every 15 seconds":       {0, withToken("p"), 0, 50 * s, three},
		"by the option":          {30 * s, withToken("p"), 0, 50 * s, []float64{-1}},
		"off":                    {-1, withToken("p"), 0, 50 * s, nil},
		"without a token":        {0, nil, 0, 50 * s, nil},
		"until the tool reports": {0, withToken("p"), 20 * s, 50 * s, []float64{-1, 0, 1}},
		"not beyond the timeout": {0, withToken("p"), 0, time.Hour, three},
	} {
		runInBubble(t, name, func(t *testing.T) {
			server := newServer(newGuard(t, onlyX(resilience.Tool{Timeout: 55 * s})), mcpgo.Heartbeat(tc.every))
			tool := func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				time.Sleep(tc.reports)
				if tc.reports > 0 {
					report(ctx, t, req, 0, 1)
				}
				time.Sleep(tc.takes - tc.reports)
				return done, nil
			}
			server.AddTool(mcp.NewTool("x"), tool)
			c := connect(t, server)
			received := collectProgress(c)
			callTool(t, c, "x", nil, tc.meta)
			time.Sleep(2 * time.Hour)
			assert.Equal(t, tc.want, values(received()))
		})
	}
}
