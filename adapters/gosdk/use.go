package gosdk

import (
	"errors"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
)

// A use is a call of [Use] that has a session.
type use struct {
	session *Session
	cs      *mcp.ClientSession
	dialed  *sessionContext // nil if it has been closed meanwhile
	sent    reach
	around  *use // that this one is within; nil if there is none

	mu     sync.Mutex
	others []error // that uses of other sessions within this one have returned, the last maxOthers of them
}

// maxOthers is how many errors of other sessions a use knows.
const maxOthers = 100

// useKey is the key of the innermost use in a context.
type useKey struct{}

// note notes that a use of s within u, which may be nil, has returned err: that says nothing of u's own session, nor of
// those around it, and neither does what the SDK has said in it, whatever comes of err. It returns err.
func (u *use) note(s *Session, err error) error {
	if u == nil || err == nil || !isBounded(err) {
		return err
	}
	news := partsOf(err, nil).said
	if e := new(resilience.Error); errors.As(err, &e) {
		news = append(news, e) // of a dial
	}
	if len(news) == 0 {
		return err
	}
	news = slices.DeleteFunc(append(news, err), func(err error) bool { return !isPointer(err) }) // these can be compared

	for ; u != nil; u = u.around {
		if u.session != s {
			u.add(news)
		}
	}
	return err
}

// add adds errors of other sessions.
func (u *use) add(news []error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.others = append(u.others, news...)
	u.others = slices.Delete(u.others, 0, max(len(u.others)-maxOthers, 0))
}

// known returns the errors of other sessions.
func (u *use) known() []error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.others)
}
