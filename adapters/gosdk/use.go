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
	others known // by uses within this one, the last maxOthers of each kind
}

// maxOthers is how many errors of other sessions a use knows.
const maxOthers = 100

// useKey is the key of the innermost use in a context.
type useKey struct{}

// note notes that a use of s within u, which may be nil, has returned err, and whether its session is lost: then that, and
// what the SDK has said in it, says nothing of u's own session, nor of those around it. Otherwise f may have used u's
// session there. It returns err.
func (u *use) note(s *Session, err error, lost bool) error {
	if u == nil || err == nil || !isBounded(err) {
		return err
	}
	news := partsOf(err, known{}).said
	if e := new(resilience.Error); errors.As(err, &e) {
		news = append(news, e) // of a dial
	}
	if len(news) == 0 {
		return err
	}
	news = slices.DeleteFunc(append(news, err), func(err error) bool { return !isPointer(err) }) // these can be compared

	for ; u != nil; u = u.around {
		switch {
		case u.session == s:
		case lost:
			u.add(&u.others.lost, news)
		case isPointer(err):
			u.add(&u.others.judged, []error{err})
		}
	}
	return err
}

// add adds to what the use knows.
func (u *use) add(all *[]error, news []error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*all = append(*all, news...)
	*all = slices.Delete(*all, 0, max(len(*all)-maxOthers, 0))
}

// known returns what the use knows of other sessions.
func (u *use) known() known {
	u.mu.Lock()
	defer u.mu.Unlock()
	return known{slices.Clone(u.others.lost), slices.Clone(u.others.judged)}
}
