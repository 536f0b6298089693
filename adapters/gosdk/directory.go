package gosdk

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// refreshTimeout bounds a refresh. The SDK replies within microseconds, but other middleware of the
// server also runs.
const refreshTimeout = 250 * time.Millisecond

var errNoList = errors.New("tools/list returned neither a result nor an error")

// A directory caches what a server's list of tools says. Tools may be added, changed and removed
// while the server runs, so it is refreshed when a tool is missing, and when a call fails and the
// tool's effect matters. It is safe for concurrent use.
type directory struct {
	next  mcp.MethodHandler
	tools atomic.Pointer[map[string]toolInfo] // the map is replaced, never changed
}

type toolInfo struct {
	effect          resilience.Effect
	hasOutputSchema bool
}

// get returns what the cache holds of the named tool.
func (d *directory) get(name string) (toolInfo, bool) {
	tools := d.tools.Load()
	if tools == nil {
		return toolInfo{}, false
	}
	info, ok := (*tools)[name]
	return info, ok
}

// has reports whether the server lists the tool that req calls, or did at the last refresh.
func (d *directory) has(ctx context.Context, req *mcp.CallToolRequest) bool {
	if _, ok := d.get(req.Params.Name); ok {
		return true
	}
	d.refresh(ctx, req)
	_, ok := d.get(req.Params.Name)
	return ok
}

// effect returns the effect that the tool's annotations declare at present, or at the last refresh
// that succeeded.
func (d *directory) effect(ctx context.Context, req *mcp.CallToolRequest) resilience.Effect {
	d.refresh(ctx, req)
	info, _ := d.get(req.Params.Name)
	return info.effect
}

// refresh lists the tools as the client of req would, because the SDK offers no other way. It keeps
// the old list if that fails.
func (d *directory) refresh(ctx context.Context, req *mcp.CallToolRequest) {
	ctx = context.WithoutCancel(ctx) // the call may have ended, and its effect still matters
	tools, err := resilience.WithTimeout(ctx, "tools/list", refreshTimeout,
		func(ctx context.Context) (map[string]toolInfo, error) { return d.list(ctx, req) })
	if err == nil {
		d.tools.Store(&tools)
	}
}

// list returns the tools on all pages of the list.
func (d *directory) list(ctx context.Context, req *mcp.CallToolRequest) (map[string]toolInfo, error) {
	tools := make(map[string]toolInfo)
	params := &mcp.ListToolsParams{}
	for {
		listReq := &mcp.ListToolsRequest{Session: req.Session, Params: params, Extra: req.Extra}
		result, err := d.next(ctx, "tools/list", listReq)
		if err != nil {
			return nil, err
		}
		page, ok := result.(*mcp.ListToolsResult)
		if !ok || page == nil {
			return nil, errNoList
		}

		for _, t := range page.Tools {
			tools[t.Name] = toolInfo{effectOf(t), t.OutputSchema != nil}
		}

		if page.NextCursor == "" || page.NextCursor == params.Cursor {
			return tools, nil
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
}

func effectOf(t *mcp.Tool) resilience.Effect {
	if t.Annotations == nil {
		return resilience.EffectFromHints(false, false)
	}
	return resilience.EffectFromHints(t.Annotations.ReadOnlyHint, t.Annotations.IdempotentHint)
}
