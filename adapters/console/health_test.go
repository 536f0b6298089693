package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The names of fields are a promise, so this compares the whole text.
func TestHealthIsADocumentWithStableNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		start := time.Now()
		cfg := tools("b")
		cfg.Tools["a"] = resilience.Tool{Breaker: "db"}
		f := newFixture(t, cfg, console.Config{Title: "mine", Authorize: allow, ShowCauses: true})
		f.call("b", 1, 20*time.Millisecond, nil)
		f.call("a", 6, 0, errBoom)
		f.guard.Breaker("b").Isolate("lunch")
		f.flush()
		time.Sleep(time.Until(start.Add(time.Second))) // Flush may have taken a moment

		w := f.do(http.MethodGet, "/api/health", "")
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
		assert.JSONEq(t, `{
			"title": "mine", "time": "2000-01-01T00:00:01Z", "started": "2000-01-01T00:00:00Z",
			"closed": false, "control": true, "step": 10, "steps": 60,
			"tools": [{
				"tool": "a", "listed": true, "available": false, "breaker": "db", "state": "open", "retryAfter": 30,
				"consecutiveFailures": 5, "inFlight": 0, "abandoned": 0,
				"lastError": {"code": "TOOL_FAILED", "message": "Tool 'a' failed", "time": "2000-01-01T00:00:00.02Z",
					"cause": "boom at 10.0.0.7, password=[REDACTED]"},
				"lastMinute": {"succeeded": 0, "failed": 5, "rejected": 1, "other": 0, "p50": 0.001, "p95": 0.001},
				"history": [[946684800, 0, 5, 1, 0, 0.001, 0.001]]
			}, {
				"tool": "b", "listed": true, "available": false, "breaker": "b", "state": "isolated",
				"consecutiveFailures": 0, "inFlight": 0, "abandoned": 0,
				"lastMinute": {"succeeded": 1, "failed": 0, "rejected": 0, "other": 0, "p50": 0.032, "p95": 0.032},
				"history": [[946684800, 1, 0, 0, 0, 0.032, 0.032]]
			}],
			"breakers": [{
				"breaker": "b", "state": "isolated", "consecutiveFailures": 0, "reason": "lunch",
				"since": "2000-01-01T00:00:00.02Z", "cause": "manual", "tools": ["b"]
			}, {
				"breaker": "db", "state": "open", "retryAfter": 30, "consecutiveFailures": 5,
				"since": "2000-01-01T00:00:00.02Z", "cause": "calls", "tools": ["a"]
			}],
			"changes": [
				{"number": 1, "time": "2000-01-01T00:00:00.02Z", "breaker": "db", "from": "closed", "to": "open",
					"cause": "calls"},
				{"number": 2, "time": "2000-01-01T00:00:00.02Z", "breaker": "b", "from": "closed", "to": "isolated",
					"cause": "manual", "reason": "lunch"}
			]
		}`, w.Body.String())
	})
}

func TestCausesAreShownOnlyIfAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{})
		f.call("x", 1, 0, errBoom)
		f.flush()
		assert.NotContains(t, f.do(http.MethodGet, "/api/health", "").Body.String(), "boom")
		assert.NotNil(t, f.health().tool(t, "x").LastError)
	})
}

func TestCauseIsCut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{ShowCauses: true})
		f.call("x", 1, 0, resilience.MarkBackend(errors.New(strings.Repeat("é", 1000))))
		assert.Equal(t, strings.Repeat("é", 150)+"…", f.health().tool(t, "x").LastError.Cause)
	})
}

func TestOutcomesAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{})
		f.call("x", 3, 0, nil)
		f.call("x", 1, 0, resilience.ErrUnfinished)
		f.call("x", 1, 0, resilience.MarkInvalid(errBoom))
		f.call("x", 6, 0, errBoom)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = resilience.Do(canceled, f.guard, "x", func(context.Context) (int, error) { return 0, nil })
		f.call("x", 1, 0, nil, resilience.Timeout(-1))
		got := f.health().tool(t, "x").LastMinute
		assert.Equal(t, minute{Succeeded: 3, Failed: 5, Rejected: 1, Other: 4}, clean(got))
	})
}

func TestHistoryIsOfTheLastTenMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{})
		for range 100 { // more than fit
			f.call("x", 2, 5*time.Second, nil)
		}
		x := f.health().tool(t, "x")
		assert.LessOrEqual(t, len(x.History), 60)
		assert.GreaterOrEqual(t, len(x.History), 58)
		assert.Equal(t, 2.0, x.History[30][1])
		assert.InDelta(t, 11, x.LastMinute.Succeeded, 1)
		assert.InEpsilon(t, 5, x.LastMinute.P50, 0.8)

		time.Sleep(11 * time.Minute)
		x = f.health().tool(t, "x")
		assert.Empty(t, x.History)
		assert.Zero(t, x.LastMinute)
	})
}

func TestBreakersOfKeysAreShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("search"), console.Config{})
		f.call("search", 5, 0, syscall.ECONNREFUSED, resilience.BreakerKey("eu/west"))
		f.call("search", 1, 0, nil, resilience.BreakerKey("us"))

		d := f.health()
		b := d.breaker(t, "search/eu/west")
		assert.Equal(t, "eu/west", b.Key)
		assert.Equal(t, "open", b.State)
		assert.Equal(t, []string{"search"}, b.Tools)
		assert.Equal(t, "connection refused", b.Reason)
		assert.Equal(t, "closed", d.breaker(t, "search/us").State)
		assert.Equal(t, "closed", d.breaker(t, "search").State)
		assert.True(t, d.tool(t, "search").Available)
	})
}

// A tool that isn't listed has a breaker of its own, which may have the name of a listed one.
func TestTheWorstBreakerOfANameIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg := resilience.Config{Tools: map[string]resilience.Tool{"x": {Breaker: "db"}}}
		f := newFixture(t, cfg, console.Config{Authorize: allow})
		f.call("db", 5, 0, errBoom)
		f.call("x", 1, 0, nil)
		assert.Equal(t, "open", f.health().breaker(t, "db").State)

		require.Equal(t, http.StatusOK, f.do(http.MethodPost, "/api/breakers/db/isolate", "").Code)
		for _, b := range f.guard.Breakers() {
			assert.Equal(t, resilience.StateIsolated, b.State(), "all of that name")
		}
	})
}

func TestSinceIsWhenABreakerCeasedToBeClosed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{})
		start := time.Now()
		f.call("x", 5, 0, errBoom)
		for range 3 {
			time.Sleep(31 * time.Second)
			f.call("x", 1, 0, errBoom) // a probe that fails
		}
		b := f.health().breaker(t, "x")
		assert.Equal(t, start, b.Since.Local())
		assert.Equal(t, "calls", b.Cause)

		f.guard.Breaker("x").Reset()
		b = f.health().breaker(t, "x")
		assert.Zero(t, b.Since)
		assert.Empty(t, b.Cause)
	})
}

func TestHealthz(t *testing.T) {
	broken := func(f *fixture, names ...string) {
		for _, name := range names {
			f.call(name, 5, 0, errBoom)
		}
	}
	for _, tc := range []struct {
		name   string
		cfg    console.Config
		act    func(*fixture)
		code   int
		status string
	}{
		{name: "all work", act: func(*fixture) {}, code: 200, status: "ok"},
		{name: "one works", act: func(f *fixture) { broken(f, "a") }, code: 200, status: "degraded"},
		{name: "none works", act: func(f *fixture) { broken(f, "a", "b") }, code: 200, status: "degraded"},
		{
			name: "the guard is closed", code: 503, status: "unavailable",
			act: func(f *fixture) { _, _ = f.guard.Close(f.Context()) },
		},
		{
			name: "a rule of the user's says yes", code: 200, status: "degraded",
			cfg: console.Config{Healthy: func(all []resilience.Health) bool { return len(all) == 2 }},
			act: func(f *fixture) { broken(f, "a", "b") },
		},
		{
			name: "a rule of the user's says no", code: 503, status: "unavailable",
			cfg: console.Config{Healthy: func([]resilience.Health) bool { return false }}, act: func(*fixture) {},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, tools("a", "b"), tc.cfg)
			tc.act(f)
			w := f.do(http.MethodGet, "/healthz", "")
			assert.Equal(t, tc.code, w.Code)
			assert.JSONEq(t, `{"status":"`+tc.status+`"}`, w.Body.String())
		})
	}
}

// However many names agents make up, the console keeps what the guard has labels for, and 200 changes.
func TestMemoryIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Breaker: resilience.BreakerConfig{Failures: 1}}, console.Config{})
		used := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		names := func(round int) {
			for i := range 6000 {
				f.call(fmt.Sprintf("%d-%d", round, i), 1, 0, nil)
				if i%100 == 0 {
					f.flush()
				}
			}
			f.flush()
		}

		names(1)
		before := used()
		names(2)
		after := used()
		assert.Less(t, int64(after)-int64(before), int64(2<<20), "6,000 more names took memory")
		assert.LessOrEqual(t, len(f.health().Tools), 1025)

		for i := range 1000 {
			b := f.guard.Breaker("flaps")
			b.Trip(0)
			b.Reset()
			if i%100 == 0 {
				f.flush()
			}
		}
		d := f.health()
		require.Len(t, d.Changes, 200)
		assert.Equal(t, 2000, d.Changes[199].Number)
	})
}

func TestHealthOfIdleAndBusyTools(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg := tools("idle")
		cfg.Tools["busy"] = resilience.Tool{Timeout: time.Minute}
		f := newFixture(t, cfg, console.Config{})
		go f.call("busy", 1, time.Hour, nil)
		go f.call("busy", 1, time.Hour, nil)
		numbers := func() (inFlight, abandoned int) {
			var d struct {
				Tools []struct{ InFlight, Abandoned int }
			}
			time.Sleep(2 * time.Second)
			w := f.do(http.MethodGet, "/api/health", "")
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d))
			return d.Tools[0].InFlight, d.Tools[0].Abandoned
		}

		inFlight, abandoned := numbers()
		assert.Equal(t, []int{2, 0}, []int{inFlight, abandoned})
		assert.Contains(t, f.do(http.MethodGet, "/api/health", "").Body.String(), `"history":[]`)
		time.Sleep(time.Minute)
		inFlight, abandoned = numbers()
		assert.Equal(t, []int{0, 2}, []int{inFlight, abandoned})
		time.Sleep(2 * time.Hour)
	})
}
