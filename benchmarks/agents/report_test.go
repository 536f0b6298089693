package agents

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var (
	seeds  = flag.Int("seeds", 2, "how many worlds each agent works in, with each server")
	update = flag.Bool("update", false, "rewrite docs/agents.svg and the tables in docs/agents.md and README.md")
)

// TestReport lets all agents work with all servers, and prints the tables. It is a test because fake time is only to
// be had in one. "make agents" runs it with 200 seeds and -update.
func TestReport(t *testing.T) {
	all := make(results, len(agents))
	t.Run("run", func(t *testing.T) {
		for i, a := range agents {
			all[i] = make([][]result, len(kinds))
			for j, k := range kinds {
				all[i][j] = make([]result, *seeds)
				t.Run(a.name+"/"+k.name, func(t *testing.T) {
					t.Parallel()
					for seed := range *seeds {
						all[i][j][seed] = inBubble(t, uint64(seed), a, k)
					}
				})
			}
		}
	})
	if t.Failed() {
		return
	}

	t.Logf("Means of %d seeds, and the 10th and the 90th percentile:\n\n%s", *seeds, all.text())
	if *update {
		require.NoError(t, os.WriteFile("../../docs/agents.svg", []byte(all.picture()), 0o644))
		require.NoError(t, replaceTable("../../docs/agents.md", all.brief()))
		require.NoError(t, replaceTable("../README.md", all.markdown()))
	}
}

// inBubble makes a run in fake time.
func inBubble(t *testing.T, seed uint64, a agent, k kind) (r result) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		r, err = run(seed, a, k)
		require.NoError(t, err)
	})
	return r
}

// replaceTable replaces what is between the marks of "make agents" in a file.
func replaceTable(path, table string) error {
	const begin, end = "<!-- made by make agents -->\n", "<!-- end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s: there is no %q before %q", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+table+end+after), 0o644)
}
