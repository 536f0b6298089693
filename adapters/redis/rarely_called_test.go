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
	return repeat(pace, (*server).callSlowly, all...)
}

// repeat does something with each of the servers again and again, until the function that it returns is called.
func repeat(pace time.Duration, do func(*server), all ...*server) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	for _, s := range all {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-over:
					return
				case <-time.After(pace):
					do(s)
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

// callFor makes a call whose client leaves after some time.
func (s *server) callFor(d time.Duration, tool func(context.Context) (string, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(d, cancel).Stop()
	_, _ = resilience.Do(ctx, s.guard, "search", tool)
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

// Nor do servers whose calls tell nothing, however many they are: together for about as long as a probe may take, or
// each of them beside one whose network is broken.
func TestServersWhoseCallsTellNothingKeepNoRarelyCalledOneOut(t *testing.T) {
	t.Parallel() // it takes long
	leaves := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	mistakes := func(takes time.Duration) func(context.Context) (string, error) {
		return func(context.Context) (string, error) {
			time.Sleep(takes)
			return "", resilience.MarkInvalid(errBackend)
		}
	}
	for name, c := range map[string]struct {
		bad, cut int
		tool     func(context.Context) (string, error)
	}{
		"the clients of two leave":       {bad: 2, tool: leaves},
		"those of ten do":                {bad: 10, tool: leaves},
		"two make mistakes":              {bad: 2, tool: mistakes(2 * time.Second)},
		"three make quick ones":          {bad: 3, tool: mistakes(20 * time.Millisecond)},
		"one leaves, and one is cut off": {bad: 1, cut: 1, tool: leaves},
		"one makes mistakes beside it":   {bad: 1, cut: 1, tool: mistakes(500 * time.Millisecond)},
		"two leave beside two of them":   {bad: 2, cut: 2, tool: leaves},
	} {
		for _, pace := range []time.Duration{20 * time.Second, 5 * time.Minute} {
			t.Run(fmt.Sprint(name, ", ", pace), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					all := servers(t, newModel(), c.bad+c.cut+1, nil)
					defer leaveAll(t, all)
					time.Sleep(absence)
					down(t, all)
					all[0].broken.Store(false)
					bad, cut, rare := all[:c.bad], all[c.bad:c.bad+c.cut], all[c.bad+c.cut]
					for _, s := range cut {
						s.cut.Store(true)
					}
					defer callOften(100*time.Millisecond, cut...)()
					defer repeat(10*time.Millisecond, func(s *server) { s.callFor(10*time.Second, c.tool) }, bad...)()
					time.Sleep(31 * time.Second)

					// The lease of another, of its first turn or a later one, may be in the way of some calls.
					atMost := 2*time.Minute + time.Duration(c.bad)*leaseTerm + 10*pace
					if c.cut > 0 { // which tells something
						atMost += time.Duration(c.bad) * 2 * time.Minute
					}
					start := time.Now()
					for before := rare.asked.Load(); rare.asked.Load() == before; {
						require.LessOrEqual(t, time.Since(start), atMost)
						time.Sleep(pace)
						rare.callSlowly()
					}
				})
			})
		}
	}
}

// However many servers there are, and however often each is called, a dead backend is asked about once in a cooldown by
// those that are called often, and once by each of the others, after whom some of the former may come out of turn.
func TestDeadBackendIsAskedOncePerCooldown(t *testing.T) {
	t.Parallel() // it takes long
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
