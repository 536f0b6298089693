package gosdk

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A directory remembers what the SDK said of the tools when it was last asked. Tools are
// added, changed and removed while a server runs, so it is asked anew when a call fails
// and the tool's effect matters.
type directory struct {
	tools atomic.Pointer[map[string]known] // replaced, never changed
}

type known struct {
	effect          resilience.Effect
	hasOutputSchema bool
}

func (d *directory) get(name string) (known, bool) {
	tools := d.tools.Load()
	if tools == nil {
		return known{}, false
	}
	k, ok := (*tools)[name]
	return k, ok
}

// registered reports whether there is such a tool, or was when we last looked.
func (s *server) registered(ctx context.Context, req *mcp.CallToolRequest) bool {
	if _, ok := s.tools.get(req.Params.Name); ok {
		return true
	}
	s.look(ctx, req)
	_, ok := s.tools.get(req.Params.Name)
	return ok
}

// effect is what the tool's annotations say now, if the SDK can be asked.
func (s *server) effect(ctx context.Context, req *mcp.CallToolRequest) resilience.Effect {
	s.look(ctx, req)
	k, _ := s.tools.get(req.Params.Name)
	return k.effect
}

// lookTimeout bounds a look: the SDK answers in microseconds, but other middleware of the
// server's runs too.
const lookTimeout = 250 * time.Millisecond

// look asks the SDK for its tools, as a client would: it has no other way.
func (s *server) look(ctx context.Context, req *mcp.CallToolRequest) {
	ctx = context.WithoutCancel(ctx) // what has just ended may be why we ask
	tools, err := resilience.WithTimeout(ctx, "tools/list", lookTimeout, func(ctx context.Context) (map[string]known, error) {
		tools := make(map[string]known)
		params := &mcp.ListToolsParams{}
		for {
			result, err := s.next(ctx, "tools/list", &mcp.ListToolsRequest{Session: req.Session, Params: params, Extra: req.Extra})
			if err != nil {
				return nil, err
			}
			list, ok := result.(*mcp.ListToolsResult)
			if !ok || list == nil {
				return nil, errNoResult
			}
			for _, t := range list.Tools {
				tools[t.Name] = known{effectOf(t), t.OutputSchema != nil}
			}
			if list.NextCursor == "" || list.NextCursor == params.Cursor {
				return tools, nil
			}
			params = &mcp.ListToolsParams{Cursor: list.NextCursor}
		}
	})
	if err == nil {
		s.tools.tools.Store(&tools)
	}
}

func effectOf(t *mcp.Tool) resilience.Effect {
	if t.Annotations == nil {
		return resilience.EffectFromHints(false, false)
	}
	return resilience.EffectFromHints(t.Annotations.ReadOnlyHint, t.Annotations.IdempotentHint)
}
