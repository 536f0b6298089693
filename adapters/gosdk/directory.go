package gosdk

import (
	"context"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A directory remembers which tools are registered, and nothing else of them: what
// their annotations say is asked anew when it matters, because tools are added, changed
// and removed while a server runs.
type directory struct {
	names atomic.Pointer[map[string]bool] // as of the last look; replaced, never changed
}

// registered reports whether there is such a tool. A name that was made up leaves
// nothing behind.
func (s *server) registered(ctx context.Context, req *mcp.CallToolRequest) bool {
	if names := s.tools.names.Load(); names != nil && (*names)[req.Params.Name] {
		return true // or removed since: then the SDK says so
	}
	return s.lookUp(ctx, req, req.Params.Name) != nil
}

// lookUp asks the SDK for a tool, as a client would: it has no other way.
func (s *server) lookUp(ctx context.Context, req *mcp.CallToolRequest, name string) (found *mcp.Tool) {
	ctx = context.WithoutCancel(ctx) // it may be what has just ended
	names := make(map[string]bool)
	params := &mcp.ListToolsParams{}
	for {
		result, err := s.next(ctx, "tools/list", &mcp.ListToolsRequest{Session: req.Session, Params: params, Extra: req.Extra})
		list, ok := result.(*mcp.ListToolsResult)
		if err != nil || !ok || list == nil {
			return found
		}
		for _, t := range list.Tools {
			names[t.Name] = true
			if t.Name == name {
				found = t
			}
		}
		if list.NextCursor == "" || list.NextCursor == params.Cursor {
			break
		}
		params = &mcp.ListToolsParams{Cursor: list.NextCursor}
	}
	s.tools.names.Store(&names)
	return found
}

func effectOf(t *mcp.Tool) resilience.Effect {
	if t == nil {
		return resilience.EffectUnknown
	}
	if t.Annotations == nil {
		return resilience.HintedEffect(false, false)
	}
	return resilience.HintedEffect(t.Annotations.ReadOnlyHint, t.Annotations.IdempotentHint)
}
