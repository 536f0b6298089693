package resilience_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// goroutines counts those that were started by one of the packages. Others come and
// go in a test binary as they like.
func goroutines(packages ...string) int {
	buf := make([]byte, 1<<20)
	n := 0
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		for _, p := range packages {
			if strings.Contains(g, "created by "+p+".") {
				n++
			}
		}
	}
	return n
}

var noContext context.Context

const self = "github.com/seed8d1e2389/resilience"

func newGuard(t *testing.T, cfg resilience.Config) *resilience.Guard {
	t.Helper()
	g, err := resilience.New(cfg)
	require.NoError(t, err)
	return g
}

// one is a Config in which tool "x" is as given and delays are steady.
func one(x resilience.Tool) resilience.Config {
	return resilience.Config{Tools: map[string]resilience.Tool{"x": x}, Retry: steady}
}

// noneStillRuns waits until the calls of g's only tool that were given up on have returned.
func noneStillRuns(t *testing.T, g *resilience.Guard) {
	t.Helper()
	require.Eventually(t, func() bool { return g.Health()[0].Abandoned == 0 }, 2*time.Minute, time.Millisecond)
}
