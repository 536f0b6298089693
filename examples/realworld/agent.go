package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A call is a call of a tool.
type call struct {
	tool string
	args map[string]any
}

// An agent calls the tools of a server by an MCP client.
type agent struct {
	ask   func(context.Context, call) (any, error) // the JSON of its value is that of an MCP result
	close func()
}

// connect connects an agent to a server on the official SDK. Like most hosts, it lists the tools first.
func connect(ctx context.Context, server *mcp.Server) (*agent, error) {
	serverSide, clientSide := mcp.NewInMemoryTransports()
	serving, err := server.Connect(ctx, serverSide, nil)
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, clientSide, nil)
	if err != nil {
		return nil, err
	}
	if _, err := session.ListTools(ctx, nil); err != nil {
		return nil, err
	}

	ask := func(ctx context.Context, call call) (any, error) {
		return session.CallTool(ctx, &mcp.CallToolParams{Name: call.tool, Arguments: call.args})
	}
	return &agent{ask: ask, close: func() {
		_ = session.Close() // may fail, because the agent gave up
		_ = serving.Wait()
	}}, nil
}

// A reading is what an agent reads, and what it takes.
type reading struct {
	text     string            // the first item of the content
	guidance *resilience.Error // nil: none
	isError  bool
	gaveUp   bool // the client has stopped waiting
	requests int64
	counted  bool
	took     time.Duration
}

// read calls a tool, and reads the result.
func (a *agent) read(ctx context.Context, call call, patience time.Duration) (r reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	res, err := a.ask(ctx, call)
	r.took = time.Since(start)
	if ctx.Err() != nil {
		r.gaveUp = true
		return r, nil
	}
	if err != nil {
		return r, err
	}

	var result struct {
		IsError bool
		Content []struct{ Text string }
	}
	b, err := json.Marshal(res)
	if err == nil {
		err = json.Unmarshal(b, &result)
	}
	if err != nil {
		return r, err
	}

	r.isError = result.IsError
	items := result.Content
	if last := len(items) - 1; last >= 0 {
		var e resilience.Error
		if json.Unmarshal([]byte(items[last].Text), &e) == nil && e.Code != "" {
			r.guidance, items = &e, items[:last]
		}
	}
	if len(items) > 1 {
		return r, fmt.Errorf("%d items of the tool's own in %s", len(items), b)
	}
	if len(items) == 1 {
		r.text = items[0].Text
	}
	return r, nil
}
