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
	none, token := mcp.Meta{}, mcp.Meta{"progressToken": "p"}
	for name, tc := range map[string]struct {
		opts    []gosdk.Option
		meta    mcp.Meta
		reports time.Duration // when the tool reports 0 and 1; never if zero
		takes   time.Duration
		want    []float64
	}{
		"every 15 seconds":              {meta: token, takes: 50 * time.Second, want: []float64{-1, -0.5, -1. / 3}},
		"by the option":                 {[]gosdk.Option{gosdk.Heartbeat(time.Second)}, token, 0, 2500 * time.Millisecond, []float64{-1, -0.5}},
		"off":                           {opts: []gosdk.Option{gosdk.Heartbeat(-1)}, meta: token, takes: 50 * time.Second},
		"without a token":               {meta: none, takes: 50 * time.Second},
		"until the tool reports":        {meta: token, reports: 20 * time.Second, takes: 50 * time.Second, want: []float64{-1, 0, 1}},
		"not beyond the timeout":        {meta: token, takes: time.Hour, want: []float64{-1, -0.5, -1. / 3}},
		"none for a call that is short": {meta: token, takes: 14 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Timeout: 55 * time.Second}},
				}, tc.opts...)
				var seen []float64
				f.options.ProgressNotificationHandler = func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					seen = append(seen, r.Params.Progress)
				}
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					time.Sleep(tc.reports)
					for i := range 2 {
						if tc.reports > 0 {
							assert.NoError(t, gosdk.NotifyProgress(ctx, req, float64(i), 0, ""))
						}
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
