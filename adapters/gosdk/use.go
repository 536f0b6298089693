package gosdk

import (
	"errors"
	"reflect"
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
// those around it. It returns err.
func (u *use) note(s *Session, err error) error {
	if u == nil || err == nil || reflect.TypeOf(err).Kind() != reflect.Pointer || !isBounded(err) {
		return err // others may not be comparable
	}
	var e *resilience.Error
	if !errors.As(err, &e) && !isCallError(err) {
		return err
	}

	for ; u != nil; u = u.around {
		if u.session == s {
			continue
		}
		u.mu.Lock()
		if len(u.others) == maxOthers {
			u.others = slices.Delete(u.others, 0, 1)
		}
		u.others = append(u.others, err)
		u.mu.Unlock()
	}
	return err
}

// own returns what err, which the use has failed with, holds beside what uses of other sessions have returned, nil if
// that is nothing, and whether it holds any of theirs.
func (u *use) own(err error) (rest error, mixed bool) {
	u.mu.Lock()
	others := slices.Clone(u.others)
	u.mu.Unlock()
	return without(others, err)
}

// without returns err without the branches that are others, and whether it has any.
func without(others []error, err error) (rest error, has bool) {
	if reflect.TypeOf(err).Kind() == reflect.Pointer && slices.Contains(others, err) {
		return nil, true
	}

	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if cause := err.Unwrap(); cause != nil {
			if rest, has = without(others, cause); has {
				return rest, true
			}
		}
	case interface{ Unwrap() []error }:
		var all []error
		for _, branch := range err.Unwrap() {
			if branch != nil {
				kept, theirs := without(others, branch)
				all, has = append(all, kept), has || theirs
			}
		}
		if has {
			return errors.Join(all...), true
		}
	}
	return err, false
}
