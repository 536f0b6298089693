package agents

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

func TestAgentsDecideAsTheirPagesSay(t *testing.T) {
	const reset, s = "connection reset by peer", time.Second
	open := &guidance{Suggestion: "Do not call this tool for 30 seconds; use others.", Retryable: true, RetryAfter: 30}
	soon := &guidance{Retryable: true}
	ask := &guidance{Suggestion: "It may have taken effect: check that in 9 seconds before …", RetryAfter: 9}
	for name, test := range map[string]struct {
		decide func(failure) decision
		failure
		want decision
	}{
		"text, first":        {readText, failure{text: reset, tries: 1}, decision{do: again, after: 2 * s}},
		"text, third":        {readText, failure{text: reset, tries: 3}, decision{do: again, after: 8 * s}},
		"text, ninth":        {readText, failure{text: reset, tries: 9}, decision{do: again, after: 30 * s}},
		"text, seconds":      {readText, failure{text: "retry after 15 seconds"}, decision{do: again, after: 15 * s}},
		"text, more seconds": {readText, failure{text: "for 7 more seconds"}, decision{do: again, after: 7 * s}},
		"text, a limit": {
			readText, failure{text: "Call again in 4 seconds; use others meanwhile."},
			decision{do: again, after: 4 * s, avoid: true},
		},
		"text, at once": {
			readText, failure{text: "do not repeat the call at once", tries: 1}, decision{do: again, after: 30 * s},
		},
		"text, avoid": {
			readText, failure{text: "Do not call this tool for 4 seconds"},
			decision{do: again, after: 4 * s, avoid: true},
		},
		"text, check":         {readText, failure{step: writing, text: "check first"}, decision{do: check, after: s}},
		"text, check, a read": {readText, failure{text: "check first"}, decision{do: again, after: s}},
		"text, never":         {readText, failure{text: "Do not repeat this call"}, decision{do: giveUp, after: s}},

		"guidance, none":    {obey, failure{text: reset, tries: 2}, decision{do: again, after: 4 * s}},
		"guidance, open":    {obey, failure{guidance: open}, decision{do: again, after: 30 * s, avoid: true}},
		"guidance, no time": {obey, failure{guidance: soon, tries: 1}, decision{do: again, after: 2 * s}},
		"guidance, never":   {obey, failure{guidance: &guidance{}, tries: 1}, decision{do: giveUp, after: 2 * s}},
		"guidance, a write": {obey, failure{step: writing, guidance: ask}, decision{do: check, after: 9 * s}},
		"guidance, a read":  {obey, failure{guidance: ask}, decision{do: giveUp, after: 9 * s}},
		"guidance, not text": {
			obey, failure{text: "check", guidance: open}, decision{do: again, after: 30 * s, avoid: true},
		},

		"busy": {
			workOnMeanwhile, failure{text: reset, tries: 1}, decision{do: again, after: 2 * s, meanwhile: true},
		},
		"busy, avoid": {
			workOnMeanwhile, failure{text: "Do not call this tool for 4 seconds"},
			decision{do: again, after: 4 * s, meanwhile: true, avoid: true},
		},
		"careful, a write": {
			checkWrites, failure{step: writing, text: reset, tries: 1}, decision{do: check, after: 2 * s},
		},
		"careful, a read": {checkWrites, failure{text: reset, tries: 1}, decision{do: again, after: 2 * s}},
		"at once":         {retryAtOnce, failure{text: "wait 30 seconds", tries: 9}, decision{do: again}},
		"gives up":        {giveUpAtOnce, failure{text: reset, tries: 1}, decision{do: giveUp}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, test.decide(test.failure)) })
	}
}

// TestAgentsAtWork lets each agent write to a server on which the first write is done and its reply lost.
func TestAgentsAtWork(t *testing.T) {
	const read, add, count = "read_record", "add_entry", "count_entries"
	for name, test := range map[string]struct {
		agent int
		guard bool
		calls []string
		end   ending
		wait  time.Duration // before the third call, beyond the model's turn
	}{
		"reads the text":               {0, false, []string{read, add, add, count}, completed, 2 * time.Second},
		"reads the text of a guard":    {0, true, []string{read, add, count}, completed, 2 * time.Second},
		"obeys without guidance":       {1, false, []string{read, add, add, count}, completed, 2 * time.Second},
		"obeys the guidance":           {1, true, []string{read, add, count}, completed, 2 * time.Second},
		"checks its writes":            {2, false, []string{read, add, count}, completed, 2 * time.Second},
		"works on meanwhile":           {3, false, []string{read, add, add, count}, completed, 2 * time.Second},
		"retries at once":              {4, false, []string{read, add, add, count}, completed, 0},
		"retries at once with a guard": {4, true, []string{read, add, add, count}, completed, 0},
		"gives up":                     {5, false, []string{read, add}, abandoned, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{fails: map[int]bool{1: true}}
				worker := s.work(t, agents[test.agent], test.guard)
				assert.Equal(t, test.calls, s.calls)
				assert.Equal(t, test.end, worker.tasks[0].end)
				assert.Equal(t, 1, worker.wasted)
				assert.Equal(t, len(test.calls), worker.calls)
				if len(s.at) > 2 {
					gap := s.at[2].Sub(s.at[1]) - test.wait
					assert.True(t, gap >= minTurn && gap <= maxTurn, gap)
				}
			})
		})
	}
}

// After as many failures of one step as maxTries says, any agent gives up.
func TestNoAgentTriesForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{fails: map[int]bool{}}
		for n := range 100 {
			s.fails[n] = true
		}
		worker := s.work(t, agents[4], false)
		assert.Len(t, s.calls, maxTries)
		assert.Equal(t, abandoned, worker.tasks[0].end)
		assert.False(t, worker.tasks[0].wrote)
	})
}

// A tool that an agent avoids is avoided in all its tasks. It goes on with others meanwhile.
func TestAnAgentAvoidsATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{world: newWorld(1), avoided: map[string]time.Duration{}}
		first, second := &task{id: "1", append: true, step: writing}, &task{id: "2"}
		w.tasks = []*task{first, second}
		assert.Same(t, first, w.next())
		w.do(first, decision{do: again, after: time.Hour, avoid: true})
		assert.Same(t, second, w.next())

		second.step, second.append = writing, true
		assert.Equal(t, time.Hour, w.readyAt(second))
		second.append = false
		assert.Zero(t, w.readyAt(second))
		time.Sleep(time.Hour)
		assert.Same(t, first, w.next())
	})
}

// One that works on meanwhile leaves the task for as long as it would wait. It avoids no tool by that.
func TestAnAgentWorksOnMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{world: newWorld(1), avoided: map[string]time.Duration{}}
		first, second := &task{id: "1", append: true}, &task{id: "2", append: true}
		w.tasks = []*task{first, second}
		w.do(first, workOnMeanwhile(failure{text: "retry after 40 seconds", tries: 1}))
		assert.Zero(t, w.now(), "it doesn't wait")
		assert.Same(t, second, w.next())
		assert.Zero(t, w.readyAt(second))
		assert.Equal(t, 40*time.Second, w.readyAt(first))
		time.Sleep(40 * time.Second)
		assert.Same(t, first, w.next())
	})
}

// A client whose response breaks off sends its request again. With a guard, that writes nothing twice.
func TestAClientReSends(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{took: time.Second}
			for range 50 {
				s.work(t, agents[len(agents)-1], guarded)
			}
			reads := func(name string) bool { return name != addEntry.name }
			assert.Equal(t, guarded, len(slices.DeleteFunc(s.calls, reads)) == 50)
		})
	}
}

// A script is a server whose calls fail by their numbers.
type script struct {
	fails map[int]bool
	took  time.Duration // of each call
	calls []string
	at    []time.Time
}

func (s *script) fetch(ctx context.Context, t tool, _ string) (string, error) {
	n := len(s.calls)
	s.calls, s.at = append(s.calls, t.name), append(s.at, time.Now())
	if s.fails[n] {
		return "", syscall.ECONNRESET
	}
	select {
	case <-time.After(s.took):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return "1", nil
}

// work lets an agent do one task, which writes to the ledger.
func (s *script) work(t *testing.T, a agent, guarded bool) *worker {
	server := newServer(s.fetch)
	if guarded {
		gosdk.Protect(server, resilience.Must(resilience.New(guardConfig())))
	}
	w := &worker{
		agent: a, world: newWorld(1), session: session(t, server), rng: rand.New(rand.NewPCG(1, uint64(len(s.calls)))),
		tasks: []*task{{id: "1", append: true}}, avoided: map[string]time.Duration{},
	}
	require.NoError(t, w.work())
	return w
}

func session(t *testing.T, server *mcp.Server) *mcp.ClientSession {
	session, err := connect(server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}
