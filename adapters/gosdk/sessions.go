package gosdk

import (
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions holds what is known of a client's sessions since they were initialized. The SDK's own ClientSession.ID can't
// be asked in a call: it waits while a login renews a token, however long that takes.
type sessions struct {
	known *sync.Map // of a weak.Pointer[mcp.ClientSession] to a sessionInfo
}

func newSessions() sessions { return sessions{new(sync.Map)} }

// A sessionInfo is what is known of a session.
type sessionInfo struct {
	id      string // which the server has given it, "" if it has given none
	reports bool   // its requests are reported to a reach
}

// learn asks s for its ID, unless s is known.
func (all sessions) learn(s mcp.Session, reports bool) {
	cs, _ := s.(*mcp.ClientSession)
	if cs == nil {
		return
	}
	key := weak.Make(cs)
	if _, found := all.known.Load(key); found {
		return
	}
	if _, found := all.known.LoadOrStore(key, sessionInfo{cs.ID(), reports}); !found {
		runtime.AddCleanup(cs, func(key weak.Pointer[mcp.ClientSession]) { all.known.Delete(key) }, key)
	}
}

// of returns what is known of s, which may be nil.
func (all sessions) of(s mcp.Session) sessionInfo {
	cs, _ := s.(*mcp.ClientSession)
	if cs == nil {
		return sessionInfo{}
	}
	found, _ := all.known.Load(weak.Make(cs))
	known, _ := found.(sessionInfo)
	return known
}
