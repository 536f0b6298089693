package gosdk

import (
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionIDs holds the IDs of a client's sessions. A session has its ID as soon as it is initialized, but the SDK doesn't
// tell it while a login renews a token, however long that takes.
type sessionIDs struct {
	known *sync.Map // of a weak.Pointer[mcp.ClientSession] to a string
}

func newSessionIDs() sessionIDs { return sessionIDs{new(sync.Map)} }

// learn asks s for its ID, unless that is known.
func (ids sessionIDs) learn(s mcp.Session) {
	cs, _ := s.(*mcp.ClientSession)
	if cs == nil {
		return
	}
	key := weak.Make(cs)
	if _, found := ids.known.Load(key); found {
		return
	}
	if _, found := ids.known.LoadOrStore(key, cs.ID()); !found {
		runtime.AddCleanup(cs, func(key weak.Pointer[mcp.ClientSession]) { ids.known.Delete(key) }, key)
	}
}

// of returns the ID of s, "" if it has none, or none that is known.
func (ids sessionIDs) of(s mcp.Session) string {
	cs, _ := s.(*mcp.ClientSession)
	if cs == nil {
		return ""
	}
	found, _ := ids.known.Load(weak.Make(cs))
	id, _ := found.(string)
	return id
}
