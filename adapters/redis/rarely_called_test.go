package redisfleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// callOften calls each of the servers again and again, until the function that it returns is called.
func callOften(pace time.Duration, all ...*server) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	for _, s := range all {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-over:
					return
				case <-time.After(pace):
					s.callSlowly()
				}
			}
		}()
	}
	return func() {
		close(over)
		for range all {
			<-done
		}
	}
}

// callSlowly makes a call that hangs until its timeout if the server's network hangs.
func (s *server) callSlowly() {
	_, _ = resilience.Do(context.Background(), s.guard, "search", func(ctx context.Context) (string, error) {
		if s.hangs.Load() {
			<-ctx.Done()
			return "", ctx.Err()
		}
		if !s.cut.Load() {
			s.asked.Add(1)
		}
		if s.cut.Load() || s.broken.Load() {
			return "", errBackend
		}
		return "found", nil
	})
}

// rejected returns how many calls of a server were rejected, one every five minutes, until one is not.
func (s *server) rejected() (n int) {
	for {
		time.Sleep(5 * time.Minute)
		before := s.asked.Load()
		s.callSlowly()
		if s.asked.Load() > before {
			return n
		}
		n++
		require.Less(s.t, n, 100)
	}
}

// A server whose own network is broken keeps out no other, however rarely that is called.
func TestServerWithABrokenNetworkKeepsNoRarelyCalledOneOut(t *testing.T) {
	seesTheOutage := func(_ *model, rare *server) {
		require.LessOrEqual(rare.t, rare.rejected(), 1)
		time.Sleep(time.Minute)
	}
	losesTheMemory := func(m *model, _ *server) {
		m.flush()
		time.Sleep(time.Minute)
	}
	for name, c := range map[string]struct {
		bad, idle int
		hang      bool
		before    func(m *model, rare *server) // the outage is over
	}{
		"at once":                          {bad: 1},
		"others aren't called at all":      {bad: 1, idle: 3},
		"it has seen the outage":           {bad: 1, before: seesTheOutage},
		"it has, and others aren't called": {bad: 1, idle: 1, before: seesTheOutage},
		"there are several":                {bad: 3},
		"there are several, in an outage":  {bad: 3, idle: 1, before: seesTheOutage},
		"its calls hang":                   {bad: 1, hang: true},
		"its calls hang, in an outage":     {bad: 1, idle: 1, hang: true, before: seesTheOutage},
		"the memory was lost":              {bad: 1, before: losesTheMemory},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, c.bad+1+c.idle, nil)
				defer leaveAll(t, all)
				time.Sleep(absence)
				down(t, all)
				bad, rare := all[:c.bad], all[c.bad]
				for _, s := range bad {
					s.cut.Store(true)
					s.hangs.Store(c.hang)
				}
				defer callOften(100*time.Millisecond, bad...)()
				if c.before != nil {
					c.before(m, rare)
				}
				rare.broken.Store(false)
				require.Zero(t, rare.rejected())
			})
		})
	}
}

// However many servers there are, and however often each is called, a dead backend is asked about once in a cooldown by
// those that are called often, and once by each of the others, after whom some of the former may come out of turn.
func TestDeadBackendIsAskedOncePerCooldown(t *testing.T) {
	for _, c := range []struct{ often, rarely, never int }{{1, 0, 0}, {1, 0, 1}, {3, 0, 0}, {3, 1, 1}, {10, 0, 1}, {10, 3, 0}, {30, 1, 0}} {
		t.Run(fmt.Sprintf("%d often, %d rarely, %d never", c.often, c.rarely, c.never), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(t, newModel(), c.often+c.rarely+c.never, nil)
				defer leaveAll(t, all)
				time.Sleep(absence)
				down(t, all)
				before := all[0].asked.Load()
				defer callOften(500*time.Millisecond, all[:c.often]...)()
				for range 6 {
					time.Sleep(5 * time.Minute)
					for _, s := range all[c.often : c.often+c.rarely] {
						s.callSlowly()
					}
				}
				asked := all[0].asked.Load() - before
				require.GreaterOrEqual(t, asked, int64(45))
				require.LessOrEqual(t, asked, int64(75+2*6*c.rarely)) // rather than one of each member in each cooldown
			})
		})
	}
}

// Of members that are owed a turn, and are called at the same time, one goes first.
func TestMembersThatAreOwedATurnGoOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(t, newModel(), 10, nil)
		defer leaveAll(t, all)
		time.Sleep(absence)
		down(t, all)
		for _, s := range all {
			time.Sleep(40 * time.Second)
			require.Error(t, s.call())
		}
		time.Sleep(10 * time.Minute)

		before := all[0].asked.Load()
		var calls sync.WaitGroup
		for _, s := range slices.Backward(all) {
			calls.Go(func() {
				_, _ = resilience.Do(context.Background(), s.guard, "search", func(context.Context) (string, error) {
					s.asked.Add(1)
					time.Sleep(5 * time.Second)
					return "", errBackend
				})
			})
			time.Sleep(10 * time.Millisecond)
		}
		calls.Wait()
		require.EqualValues(t, 1, all[0].asked.Load()-before)
	})
}
