package redisfleet

import (
	"testing"
	"testing/synctest"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// Agents may call a tool that isn't listed by the name of a key's breaker. Isolate and Reset mean the key, also if
// the member has only heard of it, and the tool if there is no such key.
func TestNameOfAKeyThatAnAgentHasTaken(t *testing.T) {
	for name, c := range map[string]struct {
		keys, tools []int // which members have a breaker of the key, and of the tool
		want        string
	}{
		"the key is here":        {keys: []int{0, 1}, tools: []int{0}, want: "listed/search/eu"},
		"the tool is elsewhere":  {keys: []int{0}, tools: []int{1}, want: "listed/search/eu"},
		"the key is elsewhere":   {keys: []int{1}, tools: []int{0}, want: "listed/search/eu"},
		"there is only the tool": {tools: []int{0, 1}, want: "unlisted/search%2Feu"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 2, nil)
				defer leaveAll(t, all)
				for _, i := range c.keys {
					all[i].cut.Store(true)
					require.Error(t, all[i].callKey("eu"), "so that the others hear of it")
					all[i].cut.Store(false)
				}
				for _, i := range c.tools {
					all[i].cut.Store(true)
					require.Error(t, all[i].callTool("search/eu"))
					all[i].cut.Store(false)
				}

				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search/eu", "moving house"))
				for _, id := range []string{"listed/search/eu", "unlisted/search%2Feu"} {
					require.Equal(t, id == c.want, m.breaker(id).State == "isolated", id)
				}
				require.NoError(t, all[0].fleet.Reset(t.Context(), "search/eu"))
				require.Equal(t, "closed", m.breaker(c.want).State)
			})
		})
	}
}

// A listed tool may be named so, too.
func TestNameOfAListedToolComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newModel(), "alone")
		s.more = []string{"search/eu"}
		s.start(nil)
		defer leaveAll(t, []*server{s})
		require.NoError(t, s.callKey("eu"))
		require.NoError(t, s.fleet.Isolate(t.Context(), "search/eu", "moving house"))
		require.Equal(t, resilience.StateIsolated, s.stateOf("search/eu"))
		require.NoError(t, s.callKey("eu"))
	})
}
