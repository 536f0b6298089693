package gosdk_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHealthShowsAgentsWhichToolsWorkAndNoMore(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		synctest.Test(t, func(t *testing.T) {
			f := newProtected(t, resilience.Config{
				Tools:   map[string]resilience.Tool{"good": {}, "bad": {Breaker: "db"}},
				Breaker: resilience.BreakerConfig{Failures: 1},
			})
			f.typed("bad", nil, func(context.Context) error { return resilience.MarkPermanent(errBoom) })
			gosdk.AddHealth(f.server, f.guard)
			f.connect(protocol)
			require.True(t, f.call("bad").IsError)

			res, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: gosdk.HealthTool})
			require.NoError(t, err)
			require.False(t, res.IsError)
			var health struct {
				Tools []struct {
					Tool       string `json:"tool"`
					Available  bool   `json:"available"`
					State      string `json:"state"`
					RetryAfter int    `json:"retryAfter"`
					LastError  any    `json:"lastError"`
				} `json:"tools"`
			}
			require.NoError(t, json.Unmarshal([]byte(text(t, res)), &health))
			require.Len(t, health.Tools, 2)
			bad := health.Tools[0]
			assert.Equal(t, "bad", bad.Tool)
			assert.False(t, bad.Available)
			assert.Equal(t, "open", bad.State)
			assert.Equal(t, 30, bad.RetryAfter)
			assert.Nil(t, bad.LastError)
			assert.True(t, health.Tools[1].Available)
			assert.JSONEq(t, text(t, res), jsonOf(t, res.StructuredContent))

			read, err := f.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: gosdk.HealthResource})
			require.NoError(t, err)
			assert.Equal(t, "application/json", read.Contents[0].MIMEType)
			assert.NoError(t, json.Unmarshal([]byte(read.Contents[0].Text), &health))
		})
	})
}

func TestAddHealthPanicsWithoutServerOrGuard(t *testing.T) {
	assert.Panics(t, func() { gosdk.AddHealth(nil, newGuard(t, resilience.Config{})) })
	assert.Panics(t, func() { gosdk.AddHealth(newServer(nil), nil) })
}
