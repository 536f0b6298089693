package peers

import (
	"context"
	"runtime"
	"testing"
)

// A tool takes at most one and a half times the memory of failsafe-go's policies for one, after a call and after the
// failures that open its breaker.
func TestMemoryOfATool(t *testing.T) {
	for name, test := range map[string]struct {
		tool  Tool
		calls int
	}{"closed": {succeed, 1}, "open": {fail, Default().Failures}} {
		ours, theirs := bytesOfATool("guard", test.tool, test.calls), bytesOfATool(Failsafe, test.tool, test.calls)
		t.Logf("%s: %d bytes, with failsafe-go %d", name, ours, theirs)
		if ours > theirs*3/2 {
			t.Errorf("%s: %d bytes, more than one and a half times %d", name, ours, theirs)
		}
	}
}

// bytesOfATool returns the bytes of heap that each of many tools takes with a peer, after some calls of each.
func bytesOfATool(peer string, tool Tool, calls int) uint64 {
	const tools = 10_000
	s := withoutRetries()
	s.Tools = ToolNames(tools)

	before := heap()
	do := Only(peer)[0].New(s)
	for _, name := range s.Tools {
		for range calls {
			_, _ = do(context.Background(), name, tool)
		}
	}
	after := heap()

	runtime.KeepAlive(do)
	runtime.KeepAlive(s.Tools)
	return (after - before) / tools
}

// heap returns the bytes of the heap that are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // finishes the sweep of the first one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
