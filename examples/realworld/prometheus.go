package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
)

// prometheus is a server like mcp-grafana. It says of an empty result that it is a failure.
var prometheus = subject{
	name:    "Prometheus",
	api:     prometheusAPI{},
	serve:   servePrometheus,
	good:    call{"query_prometheus", map[string]any{"expr": "up"}},
	missing: call{"query_prometheus", map[string]any{}},
	wrong:   call{"query_prometheus", map[string]any{"expr": "up", "time": "yesterday"}},
	own: map[string]want{
		"403, forbidden": {requests: 2}, // it sends a POST and, because of the 403, a GET
	},
}

func servePrometheus(ctx context.Context, via http.RoundTripper, guard *resilience.Guard) (*agent, error) {
	if guard != nil {
		via = resilience.Transport(via) // the first line
	}
	api, err := promapi.NewClient(promapi.Config{Address: "http://prometheus.example", RoundTripper: via})
	if err != nil {
		return nil, err
	}
	query := promv1.NewAPI(api).Query

	var opts []mcpserver.ServerOption
	if guard != nil {
		opts = append(opts, mcpserver.WithToolHandlerMiddleware(mcpgo.Middleware(guard))) // the second line
	}
	server := mcpserver.NewMCPServer("prometheus", "1.0.0", opts...)

	work := func(ctx context.Context, req mcp.CallToolRequest) (string, error) {
		expr, err := req.RequireString("expr")
		if err != nil {
			return "", err
		}
		at := time.Now()
		if s := req.GetString("time", ""); s != "" {
			if at, err = time.Parse(time.RFC3339, s); err != nil {
				return "", fmt.Errorf("parsing the time: %w", err)
			}
		}
		value, _, err := query(ctx, expr, at)
		if err != nil {
			return "", fmt.Errorf("querying Prometheus: %w", err)
		}
		if vector, ok := value.(model.Vector); ok && len(vector) == 0 {
			return "", errors.New("the query has no result; is the name of the metric right?")
		}
		return value.String(), nil
	}
	server.AddTool(mcp.NewTool("query_prometheus", mcp.WithReadOnlyHintAnnotation(true)),
		func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			out, err := work(ctx, req)
			if err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			return mcp.NewToolResultText(out), nil
		})
	return connectInProcess(ctx, server)
}

// connectInProcess connects an agent to a server on mcp-go.
func connectInProcess(ctx context.Context, server *mcpserver.MCPServer) (*agent, error) {
	c, err := client.NewInProcessClient(server)
	if err != nil {
		return nil, err
	}
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "agent", Version: "1.0.0"}
	if _, err := c.Initialize(ctx, hello); err != nil {
		return nil, errors.Join(err, c.Close())
	}

	ask := func(ctx context.Context, call call) (any, error) {
		var req mcp.CallToolRequest
		req.Params.Name, req.Params.Arguments = call.tool, call.args
		return c.CallTool(ctx, req)
	}
	return &agent{ask: ask, close: func() { _ = c.Close() }}, nil
}

type prometheusAPI struct{}

func (prometheusAPI) good(*http.Request) string {
	return `{"status": "success", "data": {"resultType": "vector", "result": [` +
		`{"metric": {"__name__": "up"}, "value": [0, "1"]}]}}`
}

func (prometheusAPI) empty() string {
	return `{"status": "success", "data": {"resultType": "vector", "result": []}}`
}

func (prometheusAPI) bad(status int) string {
	return fmt.Sprintf(`{"status": "error", "errorType": "execution", "error": %q}`, http.StatusText(status))
}
