package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
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
	text     string            // of the tool's own
	line     string            // of the guard's, empty if it adds none
	guidance *resilience.Error // from the _meta, nil if there is none
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
		Meta    map[string]json.RawMessage `json:"_meta"`
	}
	b, err := json.Marshal(res)
	if err == nil {
		err = json.Unmarshal(b, &result)
	}
	if err != nil {
		return r, err
	}

	r.isError = result.IsError
	if metadata := result.Meta[resilience.MetaError]; metadata != nil {
		r.guidance = &resilience.Error{}
		if err := json.Unmarshal(metadata, r.guidance); err != nil {
			return r, err
		}
	}
	return r, r.divide(result.Content)
}

// divide tells the tool's own text from the line of the guard, which follows it, or takes its place and then begins
// with the code.
func (r *reading) divide(items []struct{ Text string }) error {
	own := len(items)
	if r.guidance != nil && (own > 1 || own == 1 && strings.HasPrefix(items[0].Text, string(r.guidance.Code)+":")) {
		own--
		r.line = items[own].Text
	}
	if own > 1 {
		return fmt.Errorf("%d items of the tool's own in %q", own, items)
	}
	if own == 1 {
		r.text = items[0].Text
	}
	return nil
}
