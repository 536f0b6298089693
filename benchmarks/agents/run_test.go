package agents

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestASeedRepeats makes each run twice: on all processors and on one. The times between Probes are drawn, so a run
// with them doesn't repeat. It also checks the accounts.
func TestASeedRepeats(t *testing.T) {
	const seed = 1000 // which isn't among those of the report
	for _, a := range agents {
		for _, k := range kinds {
			t.Run(a.name+"/"+k.name, func(t *testing.T) {
				r := inBubble(t, seed, a, k)
				before := runtime.GOMAXPROCS(1)
				again := inBubble(t, seed, a, k)
				runtime.GOMAXPROCS(before)
				if k.name != "guard with Probe" {
					assert.Equal(t, r, again)
				}

				assert.Equal(t, agentsOfARun*tasksOfAnAgent, r.Tasks)
				assert.Equal(t, r.Tasks, r.Completed+r.Abandoned+r.Expired)
				assert.Equal(t, r.Tasks, r.Once+r.Twice+r.Lost+r.Unwritten)
				assert.Equal(t, r.Once+r.Twice, r.Completed+r.Unknown, "what is there was seen, or isn't known")
				assert.Len(t, r.Took, r.Completed)
				assert.LessOrEqual(t, r.Wasted, r.Calls)
				assert.GreaterOrEqual(t, r.Calls-r.Wasted, 2*r.Completed, "a write that failed may have been done")
				assert.LessOrEqual(t, r.Silence, clientTimeout)
			})
		}
	}
}
