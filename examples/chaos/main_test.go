package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite docs/chaos.svg")

// TestPicture compares the figures in docs/performance.md with a run in fake time, apart from the server with a Probe:
// the times between Probes are drawn.
func TestPicture(t *testing.T) {
	const committed = "../../docs/chaos.svg"
	out := filepath.Join(t.TempDir(), "chaos.svg")
	if *update {
		out = committed
	}

	var stdout bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), &memory{}, []string{"-speed", "1", "-o", out}, &stdout))
	})
	t.Logf("\n%s", stdout.String())

	readme, err := os.ReadFile("../../docs/performance.md")
	require.NoError(t, err)
	head := "| | " + strings.Join(kindNames[:], " | ") + " |\n|---|---|---|---|\n"
	_, figures, _ := strings.Cut(string(readme), head)
	figures, _, _ = strings.Cut(figures, "\n\n")
	require.NotEmpty(t, figures, "the table of docs/performance.md")
	for row := range strings.Lines(figures) {
		columns := strings.Split(strings.Trim(row, "|\n"), "|")
		want := strings.Join(strings.Fields(strings.Join(columns[:3], " ")), " ") + " "
		found := slices.ContainsFunc(rows(stdout.String()), func(row string) bool { return strings.HasPrefix(row, want) })
		assert.True(t, found, "the table of docs/performance.md: %s", want)
	}
}

// rows returns the lines of a text, with single spaces.
func rows(text string) (rows []string) {
	for line := range strings.Lines(text) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return rows
}

// inFakeTime returns what happens to the servers of docs/chaos.svg, changed by args.
func inFakeTime(t *testing.T, args ...string) (cfg config, all results) {
	cfg = defaults(t, args...)
	synctest.Test(t, func(t *testing.T) {
		var err error
		all, err = drive(t.Context(), cfg, &memory{})
		require.NoError(t, err)
	})
	return cfg, all
}

// What a Probe buys: the server with one succeeds as soon as the unguarded one, and as often, except where a timeout
// ends slow calls.
func TestAProbeCostsNoCallOnceTheBackendIsBack(t *testing.T) {
	cfg, all := inFakeTime(t)
	after, ok := all[probing].recovery(cfg)
	require.True(t, ok)
	t.Logf("with a Probe, the first success is %s after the backend's return", after)
	assert.LessOrEqual(t, after, cfg.probeInterval)

	for _, p := range outage(cfg) {
		without, _ := all[unguarded].succeededIn(p.from, p.to)
		with, _ := all[probing].succeededIn(p.from, p.to)
		t.Logf("%s: %d succeeded without the guard, %d with a Probe", p.name, without, with)
		if p.mode != slow {
			assert.GreaterOrEqual(t, with, without, p.name)
		}
	}
}

// A longer interval costs calls, but the guard keeps what the program claims of it.
func TestALongProbeIntervalCostsCalls(t *testing.T) {
	cfg, all := inFakeTime(t, "-probe-interval", "5s")
	assert.Empty(t, claims(cfg, all))
	after, _ := all[probing].recovery(cfg)
	assert.LessOrEqual(t, after, cfg.probeInterval)
}

// TestRealTime runs the program as its users do. How the calls end depends on the machine, so the
// test only looks at the picture's texts.
func TestRealTime(t *testing.T) {
	out := filepath.Join(t.TempDir(), "chaos.svg")
	var stdout bytes.Buffer
	err := run(t.Context(), &loopback{}, []string{"-o", out, "-speed", "500", "-agents", "2"}, &stdout)
	if !errors.Is(err, errClaims) {
		require.NoError(t, err)
	}
	assert.Contains(t, stdout.String(), "The outage lasts 960ms")

	svg, err := os.ReadFile(out)
	require.NoError(t, err)
	texts := textsOf(t, svg)
	for _, text := range []string{
		"Without the guard: how calls ended, by when they were made",
		"With the guard: how calls ended, by when they were made",
		"Without the guard: how long each call took",
		"With the guard: how long each call took",
		"With the guard and a Probe: how calls ended, by when they were made",
		"Requests that calls sent to the backend",
		"The backend is back: every call around its return, larger", "the backend is back",
		"healthy", "slow", "hangs", "dead", "back",
		"calls/s", "latency", "requests/s", "seconds",
	} {
		assert.Contains(t, texts, text)
	}
}

// textsOf returns the texts in an SVG.
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

// defaults returns the config of docs/chaos.svg, changed by args.
func defaults(t *testing.T, args ...string) config {
	args = append([]string{"-speed", "1", "-o", filepath.Join(t.TempDir(), "chaos.svg")}, args...)
	cfg, err := parse(args, io.Discard)
	require.NoError(t, err)
	return cfg
}

func TestSpeedDividesDurations(t *testing.T) {
	cfg, slow := defaults(t, "-speed", "20"), defaults(t)
	assert.Equal(t, 24*time.Second, length(cfg))
	assert.Equal(t, 8*time.Minute, length(slow))
	assert.Equal(t, []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second},
		[]time.Duration{cfg.timeout, cfg.cooldown, cfg.clientTimeout})
	assert.InDelta(t, len(schedule(slow)), len(schedule(cfg)), 1, "the same load, but for rounding")
}

func TestASeedGivesTheSameSchedule(t *testing.T) {
	cfg := defaults(t)
	calls := schedule(cfg)
	assert.Equal(t, calls, schedule(cfg))
	assert.InDelta(t, 8*48, len(calls), 16, "8 agents call every 10s, for 8 minutes")
	assert.True(t, slices.IsSortedFunc(calls, func(a, b call) int { return int(a.at - b.at) }))
	for i, c := range calls {
		assert.True(t, c.at >= 0 && c.at < 8*time.Minute && c.latency > 0 && c.agent >= 0 && c.agent < 8, c)
		assert.True(t, i == 0 || c.at > calls[i-1].at, "two calls at once: their order would be left to chance")
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
	assert.Equal(t, 8*time.Minute, at)
}

// However a run ends, its picture can be drawn and its figures printed.
func TestAnEmptyRunIsReported(t *testing.T) {
	var svg bytes.Buffer
	require.NoError(t, picture(&svg, defaults(t), results{}))
	textsOf(t, svg.Bytes())
	require.NoError(t, table(io.Discard, defaults(t), results{}))
	assert.NotEmpty(t, claims(defaults(t), results{}))
}

func TestClaimsReportsWhatARunDisproves(t *testing.T) {
	cfg := defaults(t)
	without := result{
		records: []record{{3 * time.Minute, time.Minute, gaveUp}},
		sent:    []time.Duration{3 * time.Minute, 5 * time.Minute},
	}
	good := func() result {
		return result{
			records: []record{
				{3 * time.Minute, 10 * time.Second, guided},
				{7 * time.Minute, time.Second, succeeded},
			},
			sent: []time.Duration{3 * time.Minute, 7 * time.Minute},
			changes: []change{
				{3 * time.Minute, resilience.StateOpen},
				{7 * time.Minute, resilience.StateHalfOpen},
				{7 * time.Minute, resilience.StateClosed},
			},
		}
	}
	assert.Empty(t, claims(cfg, results{without, good(), good()}))

	for want, change := range map[string]func(*result){
		"1 clients gave up":                   func(r *result) { r.records[0].outcome = gaveUp },
		"1 failures came without guidance":    func(r *result) { r.records[0].outcome = failed },
		"a call took 11s; the timeout is 10s": func(r *result) { r.records[0].took = 11 * time.Second },
		"sent 2 requests while":               func(r *result) { r.sent[1] = 4 * time.Minute },
		"never opened":                        func(r *result) { r.changes = r.changes[1:] },
		"isn't closed at the end":             func(r *result) { r.changes = r.changes[:2] },
		"no call succeeded":                   func(r *result) { r.records = r.records[:1] },
	} {
		r := good()
		change(&r)
		for k, all := range map[kind]results{guarded: {without, r, good()}, probing: {without, good(), r}} {
			got := claims(cfg, all)
			if assert.Len(t, got, 1, want) {
				assert.Contains(t, got[0], want)
				assert.Contains(t, got[0], "the server "+kindNames[k]+": ")
			}
		}
	}

	assert.Len(t, claims(cfg, results{{sent: without.sent}, good(), good()}), 1, "no outage to speak of")

	late := good()
	late.records = append(late.records, record{at: 6*time.Minute + cfg.probeInterval + slack, outcome: guided})
	assert.Empty(t, claims(cfg, results{without, late, good()}), "without a Probe, calls are rejected for a cooldown")
	assert.Len(t, claims(cfg, results{without, good(), late}), 1)
	late.records[2].at--
	assert.Empty(t, claims(cfg, results{without, good(), late}))
}

func TestLatencyIsAQuantile(t *testing.T) {
	r := result{}
	for _, took := range []time.Duration{4, 1, 3, 2, 5} {
		r.records = append(r.records, record{took: took})
	}
	assert.Equal(t, []time.Duration{1, 3, 5}, []time.Duration{r.latency(0), r.latency(0.5), r.latency(1)})
}

func TestDisplayRounds(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"60s": time.Minute, "6.67s": 6666 * time.Millisecond, "1.5s": 1500 * time.Millisecond,
		"833ms": 833333 * time.Microsecond, "1.23ms": 1234 * time.Microsecond, "0s": 0,
	} {
		assert.Equal(t, want, display(d))
	}
}

func TestBadFlagsAreReportedByName(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"-timeout -1s", []string{"-timeout -1s: must be from 1ms to 10m0s"}},
		{"-dead 0", []string{"-dead 0s: must be"}},
		{"-probe-interval 0", []string{"-probe-interval 0s: must be"}},
		{"-back 11m", []string{"-back 11m0s: must be"}},
		{"-hang x", []string{`"x" for flag -hang`}},
		{"-agents 0 -every 0", []string{"-agents 0: must be", "-every 0s: must be"}},
		{"-agents -3", []string{"-agents -3: must be"}},
		{"-agents 1000 -every 1s", []string{"-agents 1000, -every 1s: make about 480000 calls in 8m0s"}},
		{"-speed 0", []string{"-speed 0: must be"}},
		{"-speed 1001", []string{"-speed 1001: must be"}},
		{"-client-timeout 10s", []string{"-client-timeout 10s: must be above -timeout 10s"}},
		{"-seed -1", []string{`"-1" for flag -seed`}},
		{"-o " + dir, []string{"-o ", dir}},
		{"-o " + dir + "/none/chaos.svg", []string{"-o ", "none"}},
		{"-no-such-flag", []string{"-no-such-flag"}},
		{"out.svg", []string{`"out.svg"`}},
	} {
		args := append([]string{"-o", dir + "/chaos.svg"}, strings.Fields(tc.args)...)
		err := run(t.Context(), &loopback{}, args, io.Discard)
		for _, want := range tc.want {
			assert.ErrorContains(t, err, want, tc.args)
		}
	}

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "rejected flags leave no file behind")
}

func TestHelpListsEveryFlag(t *testing.T) {
	var stdout bytes.Buffer
	require.NoError(t, run(t.Context(), &loopback{}, []string{"-h"}, &stdout))
	for _, flag := range []string{
		"o", "seed", "agents", "speed", "every", "timeout", "cooldown", "probe-interval", "client-timeout",
		"healthy", "slow", "hang", "dead", "back",
	} {
		assert.Contains(t, stdout.String(), "  -"+flag+" ")
	}
}
