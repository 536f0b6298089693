package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTAPReaderKeepsWhatFailedAndWasSkipped(t *testing.T) {
	var out bytes.Buffer
	r := tapReader{name: "clients", out: &out}
	for line := range strings.Lines(`TAP version 13
# printed by a program
# Subtest: suite
    # Subtest: good \# one
    ok 1 - good \# one
      ---
      duration_ms: 31
      ...
    # 87 checks
    # Subtest: bad
    not ok 2 - bad
      ---
      error: '1 !== 2'
      ...
    # Subtest: left out
    ok 3 - left out # SKIP no server
      ---
      duration_ms: 8
      ...
    # Subtest: parent
        # Subtest: child
        not ok 1 - child
          ---
          error: 'wrong'
          ...
        1..1
    not ok 4 - parent
      ---
      error: '1 subtest failed'
      ...
    # Subtest: later
    not ok 5 - later # TODO
      ---
      error: 'unfinished'
      ...
    1..5
not ok 1 - suite
  ---
  error: '2 subtests failed'
  ...
# Subtest: /dir/b.test.mjs
not ok 2 - /dir/b.test.mjs
  ---
  exitCode: 1
  ...
1..2
# tests 7
`) {
		r.line(strings.TrimSuffix(line, "\n"))
	}
	assert.Equal(t, "   87 checks\n", out.String())
	assert.Equal(t, []string{
		"clients: suite > bad",
		"clients: suite > parent > child",
		"clients: /dir/b.test.mjs",
	}, r.failures)
	assert.Equal(t, []skip{{"left out", "no server"}}, r.skips)

	out.Reset()
	r.printFailed()
	assert.Contains(t, out.String(), "# printed by a program\n    not ok 2 - bad\n")
	for _, passed := range []string{"good", "duration_ms", "left out", "later", "unfinished", "1..", "TAP version"} {
		assert.NotContains(t, out.String(), passed)
	}
}

func TestClientsAreSkippedWithoutNPM(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r, _ := newRunner(t, nil)
	res := r.run(t.Context(), target{name: "clients", dir: ".", npm: true})
	assert.Equal(t, skipped, res.verdict)
	assert.Equal(t, []string{"clients: there is no npm"}, skipLines([]result{res}))
}
