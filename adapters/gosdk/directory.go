package gosdk

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

const (
	// refreshTimeout is how long a call waits for a refresh at most. The SDK replies within
	// microseconds, but other middleware of the server also runs.
	refreshTimeout = 250 * time.Millisecond

	// listTimeout bounds a refresh. Later calls use a list that was too late for the call that asked.
	listTimeout = 10 * time.Second

	// maxLists is how many calls of tools/list may run at the same time. All but one of them have
	// exceeded listTimeout.
	maxLists = 4

	// maxTools bounds the cache. Beyond it, only the last list is kept.
	maxTools = 10_000
)

var errNoList = errors.New("tools/list returned neither a result nor an error")

// A directory caches what a server's list of tools says. Tools may be added, changed and removed
// while the server runs, so it is refreshed when a tool is missing, and when a call fails and the
// tool's effect matters. It is safe for concurrent use.
//
// Refreshes are made one after the other, on a goroutine of their own, so that no call waits for
// longer than it may, and a list that hangs doesn't collect goroutines.
type directory struct {
	next  mcp.MethodHandler
	tools atomic.Pointer[map[string]toolInfo] // the map is replaced, never changed
	lists atomic.Int64                        // that run, including those that exceeded listTimeout

	mu      sync.Mutex    // guards what follows
	current chan struct{} // closed at the end of the refresh under way; nil if there is none
	began   time.Time     // when that refresh, or the last one, began
	slow    bool          // the last refresh exceeded refreshTimeout, so that no call waits for the next
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

// has reports whether the server lists the tool that req calls, or did at the last refresh, as far as is
// known: without any list, every tool may exist. It waits for a refresh within limit and until ctx ends.
func (d *directory) has(ctx context.Context, req *mcp.CallToolRequest, limit time.Duration) bool {
	if _, ok := d.get(req.Params.Name); ok {
		return true
	}
	d.refresh(ctx, req, limit)
	_, ok := d.get(req.Params.Name)
	return ok || d.tools.Load() == nil
}

// effect returns the effect that the tool's annotations declare at present, or at the last refresh
// that succeeded. It waits for a refresh within limit and until ctx ends.
func (d *directory) effect(ctx context.Context, req *mcp.CallToolRequest, limit time.Duration) resilience.Effect {
	d.refresh(ctx, req, limit)
	info, _ := d.get(req.Params.Name)
	return info.effect
}

// refresh waits for a refresh that begins after this call, since the one under way may have missed a
// change. Another call's will do if it finds the tool, but the server may show each client other tools.
func (d *directory) refresh(ctx context.Context, req *mcp.CallToolRequest, limit time.Duration) {
	if d.lists.Load() >= maxLists {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, min(limit, refreshTimeout))
	defer cancel()
	for later := false; ; later = true {
		end, mine := d.join(ctx, req)
		if end == nil {
			return
		}
		select {
		case <-end:
		case <-ctx.Done():
			return
		}

		_, found := d.get(req.Params.Name)
		if mine || later && found {
			return
		}
	}
}

// join returns the end of the refresh under way, or nil if no call should wait for it. It starts one if
// there is none.
func (d *directory) join(ctx context.Context, req *mcp.CallToolRequest) (end <-chan struct{}, mine bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		d.current, d.began, mine = make(chan struct{}), time.Now(), true
		go d.run(context.WithoutCancel(ctx), req, d.current) // later calls need it if this one has ended
	}
	if d.slow || time.Since(d.began) >= refreshTimeout {
		return nil, mine
	}
	return d.current, mine
}

// run makes a refresh, which keeps the old list if it fails.
func (d *directory) run(ctx context.Context, req *mcp.CallToolRequest, end chan struct{}) {
	tools, err := resilience.WithTimeout(ctx, "tools/list", listTimeout,
		func(ctx context.Context) (map[string]toolInfo, error) {
			d.lists.Add(1)
			defer d.lists.Add(-1)
			return d.list(ctx, req)
		})
	if err == nil {
		d.add(tools)
	}

	d.mu.Lock()
	d.current, d.slow = nil, time.Since(d.began) >= refreshTimeout
	d.mu.Unlock()
	close(end)
}

// add adds a list to the cache. What earlier lists have said of other tools stays, because a server may
// show each client other tools.
func (d *directory) add(tools map[string]toolInfo) {
	all := tools
	if old := d.tools.Load(); old != nil && len(*old)+len(tools) <= maxTools {
		all = maps.Clone(*old)
		maps.Copy(all, tools)
	}
	d.tools.Store(&all)
}

// list returns the tools on all pages of the list, as the client of req gets it, because the SDK
// offers no other way.
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
