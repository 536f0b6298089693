package gosdk

import (
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionIDs holds the IDs of the sessions of a client. A session has its ID as soon as it is initialized, but the SDK
// doesn't tell it while a login renews a token, however long that takes.
type sessionIDs struct {
	known sync.Map // of a weak.Pointer[mcp.ClientSession] to a string
}

// learn asks s for its ID, unless that is known.
func (ids *sessionIDs) learn(s mcp.Session) {
	cs, _ := s.(*mcp.ClientSession)
	if cs == nil {
		return
	}
	key := weak.Make(cs)
	if _, known := ids.known.Load(key); known {
		return
	}
	if _, known := ids.known.LoadOrStore(key, cs.ID()); !known {
		runtime.AddCleanup(cs, func(key weak.Pointer[mcp.ClientSession]) { ids.known.Delete(key) }, key)
	}
}

// of returns the ID of s, "" if it has none, or none that is known.
func (ids *sessionIDs) of(s mcp.Session) string {
	cs, _ := s.(*mcp.ClientSession)
	if cs == nil {
		return ""
	}
	id, _ := ids.known.Load(weak.Make(cs))
	known, _ := id.(string)
	return known
}
