package resilience_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A probedBackend is one that Probe can ask. It is down from the beginning.
type probedBackend struct {
	up    atomic.Bool
	asked atomic.Int32
}

func (p *probedBackend) probe(context.Context) error {
	p.asked.Add(1)
	if !p.up.Load() {
		return errBoom
	}
	return nil
}

// probed returns an open breaker with a Probe.
func probed(t *testing.T, cfg resilience.BreakerConfig) *resilience.Breaker {
	t.Helper()
	b := resilience.NewBreaker("x", cfg)
	trip(t, b)
	return b
}

// A load balancer that asks for the health, and no calls.
func TestProbeClosesTheBreakerWithoutACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		b := probed(t, resilience.BreakerConfig{Probe: backend.probe})
		for range 299 {
			time.Sleep(time.Second)
			require.Equal(t, resilience.StateOpen, b.State())
			require.Positive(t, b.RetryAfter())
		}
		asked := backend.asked.Load()
		assert.GreaterOrEqual(t, asked, int32(60), "at most 5s apart")
		assert.LessOrEqual(t, asked, int32(120), "at least half of that")

		backend.up.Store(true)
		time.Sleep(5 * time.Second)
		assert.Equal(t, resilience.StateClosed, b.State())
		asked = backend.asked.Load()
		time.Sleep(time.Hour)
		assert.Equal(t, asked, backend.asked.Load(), "it is no longer asked")
	})
}

// Each time is drawn, so that servers that share a backend don't ask it together.
func TestTimesBetweenProbesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gaps, last := make(map[time.Duration]bool), time.Now()
		b := probed(t, resilience.BreakerConfig{ProbeInterval: time.Minute, Probe: func(context.Context) error {
			gap := time.Since(last)
			assert.LessOrEqual(t, gap, time.Minute)
			assert.GreaterOrEqual(t, gap, time.Minute/2)
			gaps[gap], last = true, time.Now()
			return errBoom
		}})
		time.Sleep(10 * time.Minute)
		b.Reset()
		synctest.Wait()
		assert.Greater(t, len(gaps), 5)
	})
}

func TestNoCallIsSacrificedWhileProbeFails(t *testing.T) {
	for name, backend := range map[string]func(context.Context) error{
		"it fails": func(context.Context) error { return errBoom },
		"it hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{})
			cfg.Breaker.Probe = backend
			g := newGuard(t, cfg)
			b := g.Breaker("x")
			trip(t, b)
			opened := time.Now()
			for time.Since(opened) < 300*time.Second {
				e := resilience.Run(t.Context(), g, "x", notCalled(t)).Err
				require.Equal(t, resilience.CodeCircuitOpen, e.Code)
				require.Regexp(t, "^Circuit breaker open due to repeated failures. "+
					"Its backend is being asked; call again in [0-9]+ seconds?.$", e.Message)
				require.LessOrEqual(t, e.RetryAfter, 30*time.Second)
				time.Sleep(e.RetryAfter)
			}

			// Perhaps it is Probe that is broken.
			time.Sleep(6 * time.Second)
			mustSucceed(t, g)
			assert.Equal(t, resilience.StateClosed, b.State())
			time.Sleep(time.Minute)
		})
	}
}

// After each call that is the probe and fails, Probe keeps calls out for ten Cooldowns again.
func TestCallsBesideAProbeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		b := probed(t, resilience.BreakerConfig{Probe: backend.probe})
		calls := 0
		for start := time.Now(); time.Since(start) < time.Hour; time.Sleep(100 * time.Millisecond) {
			if report(b, errBoom) {
				calls++
			}
		}
		assert.GreaterOrEqual(t, calls, 60/6)
		assert.LessOrEqual(t, calls, 60/5)
		b.Reset()
	})
}

func TestPromise2ProbeFailsWhileACallIsTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		b := probed(t, resilience.BreakerConfig{Probe: func(context.Context) error {
			if down.Load() {
				return errBoom
			}
			return resilience.MarkInvalid(errBoom) // so that a call may be the probe
		}})
		time.Sleep(time.Minute)
		done, err := b.Allow()
		require.NoError(t, err)
		down.Store(true)
		time.Sleep(100 * time.Second)
		done(nil)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

func TestProbeThatTellsNothingLeavesTheProbeToACall(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"it panics":           func(context.Context) error { panic("p") },
		"it calls Goexit":     func(context.Context) error { runtime.Goexit(); return nil },
		"it makes a mistake":  func(context.Context) error { return resilience.MarkInvalid(errBoom) },
		"it is canceled":      func(context.Context) error { return &resilience.Error{Code: resilience.CodeCanceled} },
		"its breaker rejects": func(context.Context) error { return resilience.CircuitOpenError("y", time.Second) },
		"it ignores its end":  func(context.Context) error { time.Sleep(24 * time.Hour); return nil },
	} {
		runInBubble(t, name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := configWith(resilience.Tool{})
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			cfg.Breaker.Probe = probe
			g := newGuard(t, cfg)
			guarded, alone := g.Breaker("x"), resilience.NewBreaker("x", cfg.Breaker)
			for _, b := range []*resilience.Breaker{guarded, alone} {
				trip(t, b)
			}

			time.Sleep(2 * time.Minute) // those that hang have failed first
			for _, b := range []*resilience.Breaker{guarded, alone} {
				require.True(t, report(b, nil))
				assert.Equal(t, resilience.StateClosed, b.State())
			}
			require.NoError(t, g.Flush(t.Context()))
			crashes := name == "it panics" || name == "it calls Goexit"
			assert.Equal(t, crashes, strings.Count(log.String(), "level=WARN") == 1, log.String())
			time.Sleep(25 * time.Hour)
		})
	}
}

func TestProbesThatHangAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int32
		b := probed(t, resilience.BreakerConfig{Probe: func(context.Context) error {
			hung.Add(1)
			time.Sleep(24 * time.Hour)
			return nil
		}})
		time.Sleep(time.Hour)
		assert.EqualValues(t, 4, hung.Load())
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		b.Reset()
		time.Sleep(24 * time.Hour)
	})
}

// A Probe that can't see what is wrong doesn't make the breaker flap.
func TestCallIsTheProbeAfterARelapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		backend.up.Store(true)
		b := probed(t, resilience.BreakerConfig{Probe: backend.probe})
		time.Sleep(6 * time.Second)
		require.Equal(t, resilience.StateClosed, b.State())
		trip(t, b)
		b.Trip(0) // as a fleet does, for the same failures
		assert.Equal(t, 30*time.Second, b.RetryAfter())
		time.Sleep(30*time.Second - 1)
		require.Equal(t, resilience.StateOpen, b.State())
		assert.EqualValues(t, 1, backend.asked.Load(), "it isn't asked")
		time.Sleep(time.Nanosecond)
		require.True(t, report(b, nil), "a call is the probe")
		assert.Equal(t, resilience.StateClosed, b.State())

		time.Sleep(time.Minute)
		trip(t, b)
		time.Sleep(5 * time.Second)
		assert.Equal(t, resilience.StateClosed, b.State(), "Probe closes it again")
	})
}

// An operator who trips a breaker is obeyed while Probe fails, and no longer than that.
func TestProbeOfABreakerThatWasTripped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		changes := 0
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			Probe:    backend.probe,
			OnChange: func(string, resilience.State, resilience.State) { changes++ },
		})
		b.Trip(2 * time.Hour)
		for range 60 {
			time.Sleep(time.Minute)
			require.False(t, report(b, nil))
		}
		synctest.Wait()
		assert.Equal(t, 1, changes, "it was opened once")

		backend.up.Store(true)
		time.Sleep(5 * time.Second)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

// The breaker's change counts, and not the later result of Probe.
func TestProbeEndsWhenTheBreakerChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*resilience.Guard)
		want   resilience.State
	}{
		"Reset":   {func(g *resilience.Guard) { g.Breaker("x").Reset() }, resilience.StateClosed},
		"Isolate": {func(g *resilience.Guard) { g.Breaker("x").Isolate("r") }, resilience.StateIsolated},
		"Close":   {func(g *resilience.Guard) { _, _ = g.Close(context.Background()) }, resilience.StateOpen},
	} {
		for result, err := range map[string]error{"success": nil, "failure": errBoom} {
			runInBubble(t, name+" "+result, func(t *testing.T) {
				var asked, ended atomic.Int32
				cfg := configWith(resilience.Tool{})
				cfg.Breaker.Probe = func(ctx context.Context) error {
					asked.Add(1)
					<-ctx.Done()
					ended.Add(1)
					return err
				}
				cfg.Breaker.Cooldown, cfg.Breaker.ProbeInterval = time.Hour, time.Minute
				g := newGuard(t, cfg)
				g.Breaker("x").Trip(0)
				for asked.Load() == 0 {
					time.Sleep(time.Second)
				}
				tc.change(g)
				time.Sleep(time.Second)
				assert.EqualValues(t, 1, ended.Load())
				time.Sleep(10 * time.Minute)
				assert.Equal(t, tc.want, g.Breaker("x").State())
				assert.EqualValues(t, 1, asked.Load(), "there is nothing to ask any more")
			})
		}
	}
}

func TestBreakersInheritWhatTheyLeaveZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		cfg := configWith(resilience.Tool{Breaker: "db"})
		cfg.Tools["y"] = resilience.Tool{}
		cfg.Breaker = resilience.BreakerConfig{Failures: 2, Cooldown: time.Minute, Probe: backend.probe}
		cfg.Breakers = map[string]resilience.BreakerConfig{"db": {Failures: 1}}
		g := newGuard(t, cfg)
		cfg.Breakers["db"] = resilience.BreakerConfig{Failures: 9}
		for _, tool := range []string{"x", "y", "db"} { // the last isn't listed
			report(g.Breaker(tool), errBoom)
		}
		assert.Equal(t, resilience.StateClosed, g.Breaker("y").State())
		assert.Equal(t, resilience.StateClosed, g.Breaker("db").State())
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State())
		time.Sleep(time.Minute - 1)
		assert.False(t, report(g.Breaker("x"), nil))
		backend.up.Store(true)
		time.Sleep(5 * time.Second)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

func TestProbeURLReadsAnswersAsTransportDoes(t *testing.T) {
	var status atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	probe := resilience.ProbeURL(server.URL, server.Client()) // http.DefaultClient doesn't trust the server
	for code, class := range map[int]resilience.Class{
		404: resilience.ClassInvalid, 408: resilience.ClassInvalid, 429: resilience.ClassNeutral,
		500: resilience.ClassTransient, 503: resilience.ClassTransient,
	} {
		status.Store(int32(code))
		err := probe(t.Context())
		assert.ErrorContains(t, err, strconv.Itoa(code))
		assert.Equal(t, class, resilience.Classify(err), code)
	}
	for _, code := range []int{200, 204, 304} {
		status.Store(int32(code))
		assert.NoError(t, probe(t.Context()))
	}

	server.Close()
	err := probe(t.Context())
	require.Error(t, err)
	assert.Equal(t, resilience.ClassTransient, resilience.Classify(err))
}

func TestProbeURLNeedsAnAbsoluteURL(t *testing.T) {
	for _, wrong := range []string{
		"", "/healthz", "localhost:80", "http://\x00", "http:///healthz", "//localhost/healthz", "ftp://localhost/",
	} {
		want := fmt.Sprintf("resilience: ProbeURL: %q isn't an absolute URL of http or https", wrong)
		assert.PanicsWithValue(t, want, func() { resilience.ProbeURL(wrong, nil) })
	}
	assert.NotPanics(t, func() { resilience.ProbeURL("https://localhost/healthz", nil) })
}

// An answer that breaks off is no success. A stream has no end, and the end of a huge answer may take long.
func TestProbeURLReadsAnAnswerOfAKnownLength(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if length := r.URL.Query().Get("length"); length != "" {
			w.Header().Set("Content-Length", length)
		}
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	for path, fails := range map[string]bool{
		"/broken?length=100": true, "/stream": false, "/huge?length=1000000000000": false,
	} {
		err := resilience.ProbeURL(server.URL+path, nil)(t.Context())
		assert.Equal(t, fails, err != nil, path)
		assert.True(t, err == nil || resilience.Classify(err) == resilience.ClassTransient, path)
	}
}

const leaseCooldown = 10 * time.Second

// openWithLease returns a guard whose breaker "search" has just been opened for a leaseCooldown.
func openWithLease(t *testing.T, cfg resilience.BreakerConfig) *resilience.Guard {
	cfg.Cooldown = leaseCooldown
	g := newGuard(t, resilience.Config{Breaker: cfg, Retry: resilience.Retry{MaxRetries: -1}})
	g.Breaker("search").Trip(0)
	return g
}

func TestLeaseDecidesWhetherACallIsTheProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		lease  func(string) bool
		admits bool
	}{
		"none":   {nil, true},
		"yes":    {func(string) bool { return true }, true},
		"no":     {func(string) bool { return false }, false},
		"panics": {func(string) bool { panic("no answer") }, true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := openWithLease(t, resilience.BreakerConfig{Lease: tc.lease})
			time.Sleep(leaseCooldown)
			_, err := resilience.Do(t.Context(), g, "search", succeed)
			if tc.admits {
				require.NoError(t, err)
				require.Equal(t, resilience.StateClosed, g.Breaker("search").State())
				return
			}
			require.ErrorIs(t, err, resilience.CodeCircuitOpen)
			require.Equal(t, time.Second, err.(*resilience.Error).RetryAfter)
		})
	}
}

func TestLeasePutsProbeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, probes := 0, 0
		g := openWithLease(t, resilience.BreakerConfig{
			Lease: func(string) bool { asked++; return asked > 3 },
			Probe: func(context.Context) error { probes++; return nil },
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 4, asked)
		assert.Equal(t, 1, probes)
		assert.Equal(t, resilience.StateClosed, g.Breaker("search").State())
	})
}

func TestCallEndHasItsBreaker(t *testing.T) {
	var got []string
	g := newGuard(t, resilience.Config{
		Tools: map[string]resilience.Tool{"search": {Breaker: "index"}},
		Observers: []resilience.Observer{{End: func(_ context.Context, e resilience.CallEnd) {
			got = append(got, e.Breaker)
		}}},
	})
	canceled, _ := endedContexts(t)
	for _, call := range []struct {
		ctx  context.Context
		tool string
		opts []resilience.Option
	}{
		{ctx: t.Context(), tool: "search"},
		{ctx: t.Context(), tool: "search", opts: []resilience.Option{resilience.BreakerKey("eu")}},
		{ctx: t.Context(), tool: "unlisted"},
		{ctx: canceled, tool: "search"},
	} {
		_, _ = resilience.Do(call.ctx, g, call.tool, succeed, call.opts...)
	}
	g.Breaker("search").Isolate("maintenance")
	_, _ = resilience.Do(t.Context(), g, "search", succeed)

	require.NoError(t, g.Flush(t.Context()))
	assert.Equal(t, []string{"index", "index/eu", "unlisted", "", "index"}, got)
}

// The longer the backend has been asked in vain, the later agents are told to come back, up to a cooldown.
func TestAgentsComeBackMoreSeldomWhileProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Probe = func(context.Context) error { return errBoom }
		g := newGuard(t, cfg)
		trip(t, g.Breaker("x"))
		for _, after := range []time.Duration{10 * time.Second, 20 * time.Second, 2 * time.Minute} {
			time.Sleep(after)
			r := resilience.Run(t.Context(), g, "x", notCalled(t))
			assert.GreaterOrEqual(t, r.Err.RetryAfter, min(after, 30*time.Second))
			assert.LessOrEqual(t, r.Err.RetryAfter, 30*time.Second)
		}
	})
}
