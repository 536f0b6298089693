package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func defaults(t *testing.T, args ...string) config {
	cfg, err := parse(append(args, "-o", filepath.Join(t.TempDir(), "chaos.svg")), io.Discard)
	require.NoError(t, err)
	return cfg
}

func TestASeedGivesTheSameSchedule(t *testing.T) {
	cfg := defaults(t)
	calls := schedule(cfg)
	assert.Equal(t, calls, schedule(cfg))
	assert.InDelta(t, 8*2*23, len(calls), 16, "8 agents, 2 calls/s each, 23s")
	assert.True(t, slices.IsSortedFunc(calls, func(a, b call) int { return int(a.at - b.at) }))
	for _, c := range calls {
		assert.True(t, c.at >= 0 && c.at < 23*time.Second && c.latency > 0 && c.agent >= 0 && c.agent < 8, c)
	}

	assert.NotEqual(t, calls, schedule(defaults(t, "-seed", "2")))

	more := slices.DeleteFunc(schedule(defaults(t, "-agents", "9")), func(c call) bool { return c.agent == 8 })
	assert.Equal(t, calls, more, "another agent changes nothing for the others")
}

func TestPhasesFollowEachOther(t *testing.T) {
	at := time.Duration(0)
	for _, p := range outage(defaults(t)) {
		assert.Equal(t, at, p.from, p.name)
		assert.Greater(t, p.to, p.from, p.name)
		at = p.to
	}
	assert.Equal(t, 23*time.Second, at)
}

// The whole program, as fast as a machine that does other things too can follow.
func TestRun(t *testing.T) {
	out := filepath.Join(t.TempDir(), "chaos.svg")
	var stdout bytes.Buffer
	err := run(t.Context(), []string{
		"-o", out, "-limit", "50ms", "-cooldown", "100ms", "-client-timeout", "200ms", "-agents", "4", "-rate", "10",
		"-healthy", "300ms", "-slow", "200ms", "-hang", "500ms", "-dead", "400ms", "-back", "600ms",
	}, &stdout)
	if !errors.Is(err, errClaims) { // which depends on real time
		require.NoError(t, err)
	}
	assert.Contains(t, stdout.String(), "client gave up")

	svg, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Less(t, len(svg), 300<<10)
	texts := textsOf(t, svg)
	for _, text := range []string{
		"Without the guard: how calls ended, by when they were made",
		"With the guard: how calls ended, by when they were made",
		"Without the guard: how long each call took",
		"With the guard: how long each call took",
		"Requests sent to the backend",
		"The guard's breaker",
		"healthy", "slow", "hangs", "dead", "back",
		"calls/s", "latency", "requests/s", "seconds",
	} {
		assert.Contains(t, texts, text)
	}
}

func textsOf(t *testing.T, svg []byte) (texts []string) {
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return texts
		}
		require.NoError(t, err)
		if data, ok := token.(xml.CharData); ok {
			texts = append(texts, string(data))
		}
	}
}

// A picture can be drawn of anything that a run may come to.
func TestPictureOfNothing(t *testing.T) {
	var svg bytes.Buffer
	require.NoError(t, picture(&svg, defaults(t), result{}, result{}))
	textsOf(t, svg.Bytes())
	require.NoError(t, table(io.Discard, defaults(t), result{}, result{}))
	assert.NotEmpty(t, claims(defaults(t), result{}, result{}))
}

func TestClaims(t *testing.T) {
	cfg := defaults(t)
	unguarded := result{
		records: []record{{8 * time.Second, 3 * time.Second, gaveUp}},
		sent:    []time.Duration{8 * time.Second, 13 * time.Second},
	}
	good := func() result {
		return result{
			records: []record{
				{8 * time.Second, 501 * time.Millisecond, advised},
				{20 * time.Second, 50 * time.Millisecond, succeeded},
			},
			sent:    []time.Duration{8 * time.Second, 20 * time.Second},
			changes: []change{{8 * time.Second, resilience.StateOpen}, {18 * time.Second, resilience.StateHalfOpen}, {18 * time.Second, resilience.StateClosed}},
		}
	}
	assert.Empty(t, claims(cfg, unguarded, good()))

	for want, change := range map[string]func(*result){
		"clients gave up on the guarded": func(r *result) { r.records[0].outcome = gaveUp },
		"came without advice":            func(r *result) { r.records[0].outcome = failed },
		"took 2s; its limit is 500ms":    func(r *result) { r.records[0].took = 2 * time.Second },
		"sent it 2 requests":             func(r *result) { r.sent[1] = 9 * time.Second },
		"never opened":                   func(r *result) { r.changes = r.changes[1:] },
		"isn't closed at the end":        func(r *result) { r.changes = r.changes[:2] },
		"no guarded call succeeded":      func(r *result) { r.records[1].outcome = advised },
	} {
		r := good()
		change(&r)
		got := claims(cfg, unguarded, r)
		if assert.Len(t, got, 1, want) {
			assert.Contains(t, got[0], want)
		}
	}
	got := claims(cfg, result{sent: unguarded.sent}, good())
	if assert.Len(t, got, 1) {
		assert.Contains(t, got[0], "no outage to speak of")
	}
}

func TestLatency(t *testing.T) {
	r := result{}
	for _, took := range []time.Duration{4, 1, 3, 2, 5} {
		r.records = append(r.records, record{took: took})
	}
	assert.Equal(t, []time.Duration{1, 3, 5}, []time.Duration{r.latency(0), r.latency(0.5), r.latency(1)})
}

func TestBadFlags(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"-limit -1s", []string{"-limit -1s: must be above 0"}},
		{"-dead 0", []string{"-dead 0s: must be above 0"}},
		{"-back 11m", []string{"-back 11m0s: must be above 0 and at most 10m0s"}},
		{"-hang x", []string{`"x" for flag -hang`}},
		{"-agents 0 -rate NaN", []string{"-agents 0: must be", "-rate NaN: must be"}},
		{"-agents -3", []string{"-agents -3: must be"}},
		{"-agents 1000 -rate 1000", []string{"-agents 1000, -rate 1000: make about 23000000 calls in 23s"}},
		{"-client-timeout 500ms", []string{"-client-timeout 500ms: must be above -limit 500ms"}},
		{"-seed -1", []string{`"-1" for flag -seed`}},
		{"-o " + dir, []string{"-o ", dir}},
		{"-o " + dir + "/none/chaos.svg", []string{"-o ", "none"}},
		{"-no-such-flag", []string{"-no-such-flag"}},
		{"out.svg", []string{`"out.svg"`}},
	} {
		err := run(t.Context(), append([]string{"-o", dir + "/chaos.svg"}, strings.Fields(tc.args)...), io.Discard)
		for _, want := range tc.want {
			assert.ErrorContains(t, err, want, tc.args)
		}
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "refused flags leave no file behind")
}

func TestHelp(t *testing.T) {
	var stdout bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-h"}, &stdout))
	for _, flag := range []string{"-o", "-seed", "-agents", "-rate", "-limit", "-cooldown", "-client-timeout", "-healthy", "-slow", "-hang", "-dead", "-back"} {
		assert.Contains(t, stdout.String(), "  "+flag+" ")
	}
}
