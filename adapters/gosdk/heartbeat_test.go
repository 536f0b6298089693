package gosdk_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
)

// A heartbeat goes on until the tool reports progress, or ends, and leaves its timeout alone.
func TestHeartbeat(t *testing.T) {
	const s = time.Second
	token, three := mcp.Meta{"progressToken": "p"}, []float64{-1, -0.5, -1. / 3}
	for name, tc := range map[string]struct {
		every   time.Duration
		meta    mcp.Meta
		reports time.Duration // when the tool reports 0 and 1; never if zero
		takes   time.Duration
		want    []float64
	}{
		"every 15 seconds":       {0, token, 0, 50 * s, three},
		"by the option":          {s, token, 0, 2500 * time.Millisecond, []float64{-1, -0.5}},
		"off":                    {-1, token, 0, 50 * s, nil},
		"without a token":        {0, mcp.Meta{}, 0, 50 * s, nil},
		"until the tool reports": {0, token, 20 * s, 50 * s, []float64{-1, 0, 1}},
		"not beyond the timeout": {0, token, 0, time.Hour, three},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Timeout: 55 * time.Second}},
				}, gosdk.Heartbeat(tc.every))
				var seen []float64
				f.options.ProgressNotificationHandler = func(
					_ context.Context, req *mcp.ProgressNotificationClientRequest,
				) {
					seen = append(seen, req.Params.Progress)
				}
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					time.Sleep(tc.reports)
					if tc.reports > 0 {
						assert.NoError(t, gosdk.NotifyProgress(ctx, req, 0, 0, ""))
						assert.NoError(t, gosdk.NotifyProgress(ctx, req, 1, 0, ""))
					}
					time.Sleep(tc.takes - tc.reports)
					return textResult("done"), nil
				})
				f.connect(legacy)
				f.call("x", tc.meta)
				time.Sleep(2 * time.Hour)
				assert.Equal(t, tc.want, seen)
			})
		})
	}
}
