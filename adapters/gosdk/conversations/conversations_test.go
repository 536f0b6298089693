package conversations

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Each conversation is a small one, so there are more of them than of other properties.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "300"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestMessages(t *testing.T) {
	seen := make(map[string]int)
	rapid.Check(t, func(r *rapid.T) {
		w := run(t, draw(r))
		w.tally(seen)
		var broken []string
		for _, p := range promises {
			if how := p.broken(w); how != "" {
				broken = append(broken, p.name+": "+how)
			}
		}
		if len(broken) > 0 {
			r.Fatalf("%s\nof %+v", strings.Join(broken, "\n"), w.conversation)
		}
	})

	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[what], what)
	}
	if testing.Short() {
		return // a few conversations may lack some of these
	}
	for _, what := range []string{
		"answer", "timeout", "dropped", "told later", "steady client that waits",
		"log", "progress", "tell", "tellApart", "ask", "ping", "ask, an error", "ping, an error",
	} {
		if seen[what] == 0 {
			t.Errorf("no %s in any conversation", what)
		}
	}
}

// tally counts what has happened.
func (w *world) tally(seen map[string]int) {
	for _, c := range w.outcomes {
		switch {
		case c.ok:
			seen["answer"]++
		case c.timedOut:
			seen["timeout"]++
		default:
			seen["other end"]++
		}
	}
	for _, m := range w.messages {
		seen[m.kind]++
		switch {
		case m.err != nil && m.inVain:
			seen[m.kind+", in vain"]++
		case m.err != nil:
			seen[m.kind+", an error"]++
		case m.order == 0 && !m.isQuestion():
			seen["dropped"]++
		case m.read > m.ended:
			seen["told later"]++
			if w.isSteady(m.to) {
				seen["steady client that waits"]++
			}
		}
	}
	seen[fmt.Sprint(len(w.outcomes), " calls")]++
}
