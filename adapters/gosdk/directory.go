package gosdk

import (
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// maxTools bounds how many tools a directory holds.
const maxTools = 10_000

// A directory remembers the tools that servers have shown to clients. It learns them from the lists that
// clients ask for and never asks for one itself: the SDK has no other way to look a tool up, so each
// question would pass through the server's other middleware, which may count, refuse or delay it, in the
// name of a client that hasn't asked. Nor is there a need to: a model can only call what its client has
// listed.
//
// Each server has a directory of its own, because tools of the same name on different servers may differ.
// Servers that are made for one request each never see a list and a call: they need [ShareTools]. A guard
// isn't the place for what they share, since any servers may share one.
//
// What a list leaves out isn't removed, because it may be one page, and a server may show each client
// other tools. Instead, tools are forgotten that neither a list nor a call has named for a long time. Names
// that agents make up take no room. A directory is safe for concurrent use.
type directory struct {
	mu sync.Mutex // guards what follows

	// recent holds the tools that were named last. Once it holds half of maxTools, it becomes old, and
	// what was old is forgotten.
	recent, old map[string]toolInfo
}

type toolInfo struct {
	effect          resilience.Effect
	hasOutputSchema bool
}

// learn adds the tools of a page of a list. It ignores other results.
func (d *directory) learn(result mcp.Result) {
	page, _ := result.(*mcp.ListToolsResult)
	if page == nil {
		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range page.Tools {
		if t != nil { // other middleware may return anything
			d.put(t.Name, toolInfo{effectOf(t), t.OutputSchema != nil})
		}
	}
}

// get returns what the last list that contained the named tool has said of it.
func (d *directory) get(name string) (toolInfo, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if info, ok := d.recent[name]; ok {
		return info, true
	}

	info, ok := d.old[name]
	if ok {
		d.put(name, info) // it is in use
	}
	return info, ok
}

// isEmpty reports whether no list has shown a tool.
func (d *directory) isEmpty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.recent) == 0
}

// put adds a tool to recent. d.mu must be held.
func (d *directory) put(name string, info toolInfo) {
	if _, ok := d.recent[name]; !ok && len(d.recent) == maxTools/2 {
		d.old, d.recent = d.recent, nil
	}
	if d.recent == nil {
		d.recent = make(map[string]toolInfo)
	}
	d.recent[name] = info
}

func effectOf(t *mcp.Tool) resilience.Effect {
	if t.Annotations == nil {
		return resilience.EffectFromHints(false, false)
	}
	return resilience.EffectFromHints(t.Annotations.ReadOnlyHint, t.Annotations.IdempotentHint)
}
