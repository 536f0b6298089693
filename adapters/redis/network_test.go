package redisfleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// A modelStore is the store of one member: a network to the model.
type modelStore struct {
	*model
	me   string
	seen atomic.Pointer[memory]

	// delay is how long a command or a message takes, each way, and lost whether it is. nil means none.
	delay func() time.Duration
	lost  func() bool

	down atomic.Bool // nothing passes
	slow atomic.Bool // a command or a message takes 200ms, each way

	faults sync.Map // operation -> fault
}

// A fault is what happens to commands of an operation: one isn't executed if before returns an error, and it is, but
// without a reply, if after does.
type fault struct {
	before, after func(ctx context.Context) error
}

// refuse lets operations fail at once.
func (s *modelStore) refuse(err error, ops ...string) {
	for _, op := range ops {
		s.faults.Store(op, fault{before: func(context.Context) error { return err }})
	}
}

// lose lets commands be lost, and loseReplies the replies to them.
func (s *modelStore) lose(op string)        { s.faults.Store(op, fault{before: hang}) }
func (s *modelStore) loseReplies(op string) { s.faults.Store(op, fault{after: hang}) }

// delayOnce lets the next command of an operation be executed late, however long it is waited for.
func (s *modelStore) delayOnce(op string, d time.Duration) {
	s.faults.Store(op, fault{before: func(context.Context) error {
		s.faults.Delete(op)
		time.Sleep(d)
		return nil
	}})
}

func (s *modelStore) mend() { s.faults.Clear() }

// deafen loses messages until hear is called.
func (s *modelStore) deafen() (hear func()) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[s]
	delete(s.listeners, s)
	return func() {
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listeners[s] = l
	}
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (m *model) store(member string) *modelStore { return &modelStore{model: m, me: member} }

var errLost = errors.New("i/o timeout")

// over executes an operation over the network.
func over[T any](ctx context.Context, s *modelStore, op string, do func() T) (reply T, err error) {
	broken := s.fault(op)
	if broken.before != nil {
		if err := broken.before(ctx); err != nil {
			return reply, err
		}
	}
	if err := s.travel(ctx); err != nil {
		return reply, err
	}
	s.mu.Lock()
	s.commands[op]++
	s.expire()
	s.fork()
	if op != "leave" && op != "lease" { // a lease may come late
		s.alive(s.me)
		s.begin()
	}
	reply = do()
	s.mu.Unlock()
	if broken.after != nil {
		if err := broken.after(ctx); err != nil {
			return reply, err
		}
	}
	return reply, s.travel(ctx)
}

// fault returns what happens to commands of an operation.
func (s *modelStore) fault(op string) fault {
	f, _ := s.faults.Load(op)
	broken, _ := f.(fault)
	return broken
}

func (s *modelStore) latency() time.Duration {
	switch {
	case s.slow.Load():
		return 200 * time.Millisecond
	case s.delay != nil:
		return s.delay()
	}
	return 0
}

// arrived marks the context of an operation that is at the store already, as one of several.
type arrived struct{}

func (s *modelStore) travel(ctx context.Context) error {
	if ctx.Value(arrived{}) != nil {
		return nil
	}
	d := s.latency()
	lost := s.down.Load() || s.lost != nil && s.lost()
	if lost {
		d = time.Hour
	}
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if lost {
		return errLost
	}
	return nil
}

// send delivers a message, which isn't waited for.
func (s *modelStore) send(deliver func()) {
	go func() {
		if s.down.Load() || s.lost != nil && s.lost() {
			return
		}
		time.Sleep(s.latency())
		deliver()
	}()
}
