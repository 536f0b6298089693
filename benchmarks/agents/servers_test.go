package agents

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A trial is a server in a world whose backends are all in the same phases.
type trial struct {
	*world
	session *mcp.ClientSession
}

// each makes a trial with each kind of server, and gives test what the table holds for that.
func each[T any](t *testing.T, phases []phase, wants map[string]T, test func(*testing.T, *trial, T)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1)
				for _, host := range hosts {
					w.phases[host] = phases
				}
				server, stop := k.start(w)
				test(t, &trial{w, session(t, server)}, wants[k.name])
				stop()
				time.Sleep(time.Minute) // until the last Probe has ended
			})
		})
	}
}

// asked returns how many requests have come to a backend that was dead or hung.
func (t *trial) asked() int {
	n, _ := t.counted()
	return n
}

// call calls a tool and reports whether that has succeeded, and how long it took.
func (t *trial) call(tb testing.TB, tool tool) (ok bool, took time.Duration) {
	ctx, cancel := context.WithTimeout(tb.Context(), clientTimeout)
	defer cancel()
	start := time.Now()
	res, err := t.session.CallTool(ctx, &mcp.CallToolParams{Name: tool.name, Arguments: input{"1"}})
	if ctx.Err() == nil {
		require.NoError(tb, err)
	}
	return err == nil && !res.IsError, time.Since(start)
}

func TestServersEndCallsThatHang(t *testing.T) {
	each(t, []phase{{hanging, 0}, {healthy, time.Hour}}, map[string]time.Duration{
		"bare": clientTimeout, "by hand": callTimeout, "by hand, with words": callTimeout,
		"failsafe-go": callTimeout, "guard": callTimeout, "guard with Probe": callTimeout,
	}, func(t *testing.T, trial *trial, want time.Duration) {
		ok, took := trial.call(t, readRecord)
		assert.False(t, ok)
		assert.Equal(t, want, took)
		assert.Equal(t, 1, trial.asked())
	})
}

// Reads are retried. A write whose connection is refused may be, which only the guard knows.
func TestServersRetry(t *testing.T) {
	each(t, []phase{{dead, 0}}, map[string][2]int{
		"bare": {1, 1}, "by hand": {4, 1}, "by hand, with words": {4, 1}, "failsafe-go": {3, 1},
		"guard": {4, 4}, "guard with Probe": {4, 4},
	}, func(t *testing.T, trial *trial, want [2]int) {
		trial.call(t, readRecord)
		assert.Equal(t, want[0], trial.asked())
		trial.call(t, addEntry)
		assert.Equal(t, want[0]+want[1], trial.asked())
	})
}

func TestNoServerRepeatsAWriteThatMayBeDone(t *testing.T) {
	each(t, []phase{{healthy, 0}, {dead, 1}}, map[string]int{}, func(t *testing.T, trial *trial, _ int) {
		ok, _ := trial.call(t, addEntry) // its connection breaks
		assert.False(t, ok)
		assert.Zero(t, trial.asked())
	})
}

// The backend is dead for 23 seconds, and the breaker opens at once.
func TestBreakers(t *testing.T) {
	const back = 23 * time.Second
	each(t, []phase{{dead, 0}, {healthy, back}}, map[string]struct {
		requests int // of six calls
		again    time.Duration
		held     bool // whether a call that comes too soon waits until then
	}{
		"bare":                {6, back, false},
		"by hand":             {failures, cooldown, false},
		"by hand, with words": {failures, cooldown, false},
		"failsafe-go":         {failures, cooldown, false},
		"guard":               {4 + failures - 1, cooldown, true},
		"guard with Probe":    {4 + failures - 1, 20 * time.Second, true},
	}, func(t *testing.T, trial *trial, want struct {
		requests int
		again    time.Duration
		held     bool
	}) {
		for range failures + 1 {
			trial.call(t, addEntry)
		}
		assert.Equal(t, want.requests, trial.asked())

		time.Sleep(want.again - 50*time.Millisecond)
		ok, _ := trial.call(t, addEntry)
		assert.Equal(t, want.held, ok, "too soon")
		time.Sleep(9 * time.Second) // the backend is back, and a Probe has asked it
		ok, _ = trial.call(t, addEntry)
		assert.True(t, ok)
	})
}

// The backend limits rates for 10 seconds, and each reply says to come back in 15. Failsafe-go's breaker waits for
// so long, others for their cooldown. A guard's breaker doesn't open.
func TestBreakersOfALimitedBackend(t *testing.T) {
	each(t, []phase{{limited, 0}, {healthy, 10 * time.Second}}, map[string]bool{
		"bare": true, "by hand": false, "by hand, with words": false, "failsafe-go": true,
		"guard": true, "guard with Probe": true,
	}, func(t *testing.T, trial *trial, want bool) {
		for range failures {
			ok, _ := trial.call(t, addEntry)
			assert.False(t, ok)
		}
		time.Sleep(limitWindow + time.Second)
		ok, _ := trial.call(t, addEntry)
		assert.Equal(t, want, ok, "before the cooldown has passed")

		time.Sleep(cooldown - limitWindow)
		ok, _ = trial.call(t, addEntry)
		assert.True(t, ok)
	})
}

// The words tell an agent what the guard does, and each kind of agent understands them.
func TestWords(t *testing.T) {
	for name, tc := range map[string]struct {
		tool
		err  error
		want decision
	}{
		"open":            {readRecord, gobreaker.ErrOpenState, decision{do: again, after: cooldown, avoid: true}},
		"half-open":       {addEntry, gobreaker.ErrTooManyRequests, decision{do: again, after: cooldown, avoid: true}},
		"a lost reply":    {addEntry, errReset, decision{do: check, after: 2 * time.Second}},
		"refused":         {addEntry, syscall.ECONNREFUSED, decision{do: again, after: 2 * time.Second}},
		"limited":         {addEntry, errors.New("429: in 15 seconds"), decision{do: again, after: limitWindow}},
		"a read":          {readRecord, errReset, decision{do: again, after: 2 * time.Second}},
		"may be repeated": {setStatus, errReset, decision{do: again, after: 2 * time.Second}},
	} {
		f := failure{step: writing, tries: 1, text: withWords(tc.tool, tc.err).Error()}
		assert.Equal(t, tc.want, readText(f), name)
		assert.Equal(t, tc.want, obey(f), name)
		assert.ErrorIs(t, withWords(tc.tool, tc.err), tc.err, name)
	}
	assert.NoError(t, withWords(addEntry, nil))
}
