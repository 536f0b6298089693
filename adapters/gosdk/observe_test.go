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

// An agent learns which tools are worth calling, and no more.
func TestAddHealth(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newServer(t, resilience.Config{
					Tools:   map[string]resilience.Tool{"good": {}, "bad": {Breaker: "db"}},
					Breaker: resilience.BreakerConfig{Failures: 1},
				})
				fails := func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
					return nil, nil, resilience.MarkPermanent(errBoom)
				}
				mcp.AddTool(f.server, &mcp.Tool{Name: "bad"}, fails)
				gosdk.AddHealth(f.server, f.guard)
				f.connect(protocol)
				require.True(t, f.call("bad").IsError)

				res, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: resilience.HealthTool})
				require.NoError(t, err)
				require.False(t, res.IsError)
				text := res.Content[0].(*mcp.TextContent).Text
				var got struct {
					Tools []struct {
						Tool       string `json:"tool"`
						Available  bool   `json:"available"`
						State      string `json:"state"`
						RetryAfter int    `json:"retryAfter"`
						LastError  any    `json:"lastError"`
					} `json:"tools"`
				}
				require.NoError(t, json.Unmarshal([]byte(text), &got))
				require.Len(t, got.Tools, 2)
				assert.Equal(t, "bad", got.Tools[0].Tool)
				assert.False(t, got.Tools[0].Available)
				assert.Equal(t, "open", got.Tools[0].State)
				assert.Equal(t, 30, got.Tools[0].RetryAfter)
				assert.Nil(t, got.Tools[0].LastError)
				assert.True(t, got.Tools[1].Available)

				structured, err := json.Marshal(res.StructuredContent)
				require.NoError(t, err)
				assert.JSONEq(t, text, string(structured))

				read, err := f.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: resilience.HealthResource})
				require.NoError(t, err)
				assert.Equal(t, "application/json", read.Contents[0].MIMEType)
				assert.NoError(t, json.Unmarshal([]byte(read.Contents[0].Text), &got))
			})
		})
	}
	assert.Panics(t, func() { gosdk.AddHealth(nil, resilience.Must(resilience.New(resilience.Config{}))) })
	assert.Panics(t, func() { gosdk.AddHealth(mcp.NewServer(&mcp.Implementation{}, nil), nil) })
}

// Observers learn of the request, and that a result which asks the user something is
// neither a success nor a failure.
func TestObserverLearnsOfTheRequest(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var request resilience.Request
				var ends []resilience.CallEnd
				f := newServer(t, resilience.Config{Observers: []resilience.Observer{{
					Start: func(_ context.Context, e resilience.CallStart) context.Context {
						request = e.Request
						return nil
					},
					End: func(_ context.Context, e resilience.CallEnd) { ends = append(ends, e) },
				}}})
				works := func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
					return nil, nil, nil
				}
				mcp.AddTool(f.server, &mcp.Tool{Name: "x"}, works)
				f.connect(protocol)
				f.call("x", mcp.Meta{"traceparent": "00-1-2-01"})
				require.NoError(t, f.guard.Flush(t.Context()))
				assert.Equal(t, "tools/call", request.Method)
				assert.Equal(t, protocol, request.Protocol)
				assert.Equal(t, "00-1-2-01", request.Meta["traceparent"])
				assert.False(t, request.Client)
				require.Len(t, ends, 1)
				assert.Nil(t, ends[0].Err)
				assert.False(t, ends[0].Unfinished)
			})
		})
	}
}

func TestObserverOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var request resilience.Request
		g := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{{
			Start: func(_ context.Context, e resilience.CallStart) context.Context { request = e.Request; return nil },
		}}}))
		call := gosdk.ClientMiddleware(g)(func(context.Context, string, mcp.Request) (mcp.Result, error) {
			return &mcp.CallToolResult{}, nil
		})
		req := &mcp.ClientRequest[*mcp.CallToolParams]{Params: &mcp.CallToolParams{Name: "x"}}
		_, err := call(t.Context(), "tools/call", req)
		require.NoError(t, err)
		assert.Equal(t, resilience.Request{Method: "tools/call", Client: true}, request)
	})
}
