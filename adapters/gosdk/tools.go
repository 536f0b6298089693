package gosdk

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// listTimeout bounds how long a call waits for the list of tools, which the SDK makes in microseconds. Other
// middleware may hang.
const listTimeout = time.Second

var errNoList = errors.New("gosdk: tools/list has no result")

// A directory holds the tools of a server, by name. The zero value is empty. It is safe for concurrent use.
type directory struct {
	mu    sync.Mutex
	tools map[string]*mcp.Tool
}

func (d *directory) get(name string) *mcp.Tool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tools[name]
}

func (d *directory) set(tools map[string]*mcp.Tool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tools = tools
}

// forget makes the next call ask the server again.
func (d *directory) forget() { d.set(nil) }

// find returns the tool that req calls. If the directory doesn't have it, find asks the server for all of its tools,
// because it may have been added. The tool is nil and unknown if the server doesn't list it. It is nil and may exist if
// the server can't be asked.
func (s *server) find(ctx context.Context, req *mcp.CallToolRequest) (tool *mcp.Tool, unknown bool) {
	name := req.Params.Name
	if tool := s.tools.get(name); tool != nil {
		return tool, false
	}

	tools, err := resilience.WithTimeout(ctx, methodListTools, listTimeout,
		func(ctx context.Context) (map[string]*mcp.Tool, error) { return s.list(ctx, req) })
	if err != nil {
		return nil, false
	}
	s.tools.set(tools)
	s.guard.CheckTools(slices.Collect(maps.Keys(tools)))
	return tools[name], tools[name] == nil
}

// list asks the next handler for all tools, in the name of the client that has sent req.
func (s *server) list(ctx context.Context, req *mcp.CallToolRequest) (map[string]*mcp.Tool, error) {
	tools := make(map[string]*mcp.Tool)
	params := &mcp.ListToolsParams{}
	for ctx.Err() == nil {
		result, err := s.next(ctx, methodListTools,
			&mcp.ListToolsRequest{Session: req.Session, Params: params, Extra: req.Extra})
		if err != nil {
			return nil, err
		}
		page, _ := result.(*mcp.ListToolsResult)
		if page == nil {
			return nil, errNoList
		}

		for _, t := range page.Tools {
			if t != nil { // other middleware may return anything
				tools[t.Name] = t
			}
		}
		if page.NextCursor == "" {
			return tools, nil
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
	return nil, ctx.Err()
}

// effectOf returns the effect that the annotations of a tool declare. It is unknown if the tool is nil.
func effectOf(t *mcp.Tool) resilience.Effect {
	switch {
	case t == nil:
		return resilience.EffectUnknown
	case t.Annotations == nil:
		return resilience.EffectFromHints(false, false)
	}
	return resilience.EffectFromHints(t.Annotations.ReadOnlyHint, t.Annotations.IdempotentHint)
}
