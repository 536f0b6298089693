package resilience_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
			require.LessOrEqual(t, b.RetryAfter(), 5*time.Second)
		}
		asked := backend.asked.Load()
		assert.GreaterOrEqual(t, asked, int32(66), "at most 5s apart, and not all as far as that")
		assert.LessOrEqual(t, asked, int32(120), "at least half of that")

		backend.up.Store(true)
		time.Sleep(5 * time.Second)
		assert.Equal(t, resilience.StateClosed, b.State())
		asked = backend.asked.Load()
		time.Sleep(time.Hour)
		assert.Equal(t, asked, backend.asked.Load(), "it is no longer asked")
	})
}

func TestNoCallIsSacrificedWhileProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Probe = backend.probe
		g := newGuard(t, cfg)
		trip(t, g.Breaker("x"))
		opened := time.Now()
		for time.Since(opened) < 300*time.Second {
			r := resilience.Run(t.Context(), g, "x", notCalled(t))
			require.Equal(t, resilience.CodeCircuitOpen, r.Err.Code)
			require.Regexp(t, "^Circuit breaker open due to repeated failures. "+
				"Its backend is being asked; call again in [0-9]+ seconds?.$", r.Err.Message)
			time.Sleep(r.Err.RetryAfter)
		}

		// Perhaps it is Probe that is broken.
		time.Sleep(time.Second)
		assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}

// While Probe fails, calls are told to come back as late as that has lasted, and a Cooldown at most: the next Probe is
// likely to fail, too.
func TestRejectedCallsComeBackMoreSeldomWhileProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Probe: func(context.Context) error { return errBoom }})
		trip(t, b)
		opened, calls := time.Now(), 0
		for ; time.Since(opened) < 4*time.Minute; calls++ {
			_, err := b.Allow()
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			assert.LessOrEqual(t, e.RetryAfter, 30*time.Second)
			assert.GreaterOrEqual(t, e.RetryAfter, min(time.Since(opened), 25*time.Second)) // putOff was up to 5s ago
			assert.LessOrEqual(t, e.RetryAfter, max(time.Since(opened), 5*time.Second))
			assert.LessOrEqual(t, b.RetryAfter(), 5*time.Second, "that is until Probe is called")
			time.Sleep(e.RetryAfter)
		}
		assert.LessOrEqual(t, calls, 14)
		b.Reset()
	})
}

func TestProbeThatSaysNothingLeavesTheProbeToACall(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"it panics":            func(context.Context) error { panic("p") },
		"it calls Goexit":      func(context.Context) error { runtime.Goexit(); return nil },
		"it is rejected":       func(context.Context) error { return resilience.MarkInvalid(errBoom) },
		"it is canceled":       func(context.Context) error { return &resilience.Error{Code: resilience.CodeCanceled} },
		"its breaker rejects":  func(context.Context) error { return resilience.CircuitOpenError("x", time.Second) },
		"it ignores its end":   func(context.Context) error { time.Sleep(24 * time.Hour); return nil },
		"its error is endless": func(context.Context) error { return unwrapError{func() { time.Sleep(24 * time.Hour) }} },
	} {
		runInBubble(t, name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := configWith(resilience.Tool{})
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			cfg.Breaker.Probe = probe
			g := newGuard(t, cfg)
			trip(t, g.Breaker("x"))
			time.Sleep(29 * time.Second)
			assert.ErrorIs(t, resilience.Run(t.Context(), g, "x", notCalled(t)).Err, resilience.CodeCircuitOpen)

			time.Sleep(2 * time.Minute) // those that hang have failed first
			assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed).Err)
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
			require.NoError(t, g.Flush(t.Context()))
			crashes := strings.HasPrefix(name, "it panics") || strings.HasPrefix(name, "it calls")
			assert.Equal(t, crashes, strings.Count(log.String(), "a Probe crashed") == 1, log.String())
			time.Sleep(25 * time.Hour)
		})
	}
}

func TestProbesThatHangAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, hung atomic.Int32
		b := probed(t, resilience.BreakerConfig{Probe: func(context.Context) error {
			if asked.Add(1) <= 10 {
				return resilience.MarkInvalid(errBoom)
			}
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

// The time between the beginnings of two Probes doesn't depend on how long they take.
func TestProbesBeginAtMostAnIntervalApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last, asked atomic.Int64
		last.Store(time.Now().UnixNano())
		b := probed(t, resilience.BreakerConfig{Probe: func(ctx context.Context) error {
			asked.Add(1)
			now := time.Now().UnixNano()
			since := time.Duration(now - last.Swap(now))
			assert.LessOrEqual(t, since, 5*time.Second+time.Millisecond)
			assert.GreaterOrEqual(t, since, 2500*time.Millisecond)
			select {
			case <-ctx.Done(): // now and then the backend hangs
			case <-time.After(time.Duration(now%7) * time.Second):
			}
			return errBoom
		}})
		time.Sleep(4 * time.Minute)
		assert.GreaterOrEqual(t, asked.Load(), int64(47))
		b.Reset()
		time.Sleep(10 * time.Second)
	})
}

// However soon calls are the probe, and fail, they put no Probe off.
func TestCallsThatFailPutNoProbeOff(t *testing.T) {
	for _, cooldown := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int32
			b := probed(t, resilience.BreakerConfig{Cooldown: cooldown, Probe: func(context.Context) error {
				asked.Add(1)
				return resilience.MarkNeutral(errBoom)
			}})
			for start := time.Now(); time.Since(start) < 10*time.Minute; time.Sleep(100 * time.Millisecond) {
				report(b, errBoom)
			}
			assert.GreaterOrEqual(t, asked.Load(), int32(10*60/5))
			assert.LessOrEqual(t, asked.Load(), int32(10*60*2/5))
			b.Reset()
		})
	}
}

// A Probe that fails keeps calls out for ten Cooldowns after each call that has been the probe.
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

// A Probe that can't see what is wrong doesn't make the breaker flap.
func TestProbeClosesAtMostOnceInACooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		backend.up.Store(true)
		opened := 0
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Probe: backend.probe, OnChange: func(_ string, _, to resilience.State) {
			if to == resilience.StateOpen {
				opened++
			}
		}})
		for start := time.Now(); time.Since(start) < 10*time.Minute; time.Sleep(100 * time.Millisecond) {
			report(b, errBoom)
		}
		synctest.Wait()
		assert.LessOrEqual(t, opened, 2*10*60/30)
		assert.GreaterOrEqual(t, opened, 10)

		time.Sleep(2 * time.Minute)
		require.Equal(t, resilience.StateClosed, b.State(), "without calls, too")
		trip(t, b)
		time.Sleep(6 * time.Second)
		require.Equal(t, resilience.StateClosed, b.State())
		trip(t, b)
		assert.Equal(t, 30*time.Second, b.RetryAfter(), "it isn't asked")
		time.Sleep(30 * time.Second)
		require.True(t, report(b, nil), "a call is the probe")
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

// What happens meanwhile doesn't matter.
func TestProbeIsCalledAgainACooldownAfterItHasClosedTheBreaker(t *testing.T) {
	for name, between := range map[string]func(*resilience.Breaker){
		"nothing":  func(*resilience.Breaker) {},
		"relapsed": func(b *resilience.Breaker) { trip(t, b); b.Reset() },
		"tripped":  func(b *resilience.Breaker) { b.Trip(time.Hour); b.Reset() },
	} {
		for after, want := range map[time.Duration]resilience.State{
			30*time.Second - 1: resilience.StateOpen, 30 * time.Second: resilience.StateClosed,
		} {
			runInBubble(t, name+", "+after.String(), func(t *testing.T) {
				var answered time.Time
				b := probed(t, resilience.BreakerConfig{Probe: func(context.Context) error {
					answered = time.Now()
					return nil
				}})
				time.Sleep(6 * time.Second)
				require.Equal(t, resilience.StateClosed, b.State())
				closed := answered
				time.Sleep(20 * time.Second)
				between(b)
				time.Sleep(after - time.Since(closed))
				trip(t, b)
				time.Sleep(6 * time.Second)
				assert.Equal(t, want, b.State())
			})
		}
	}
}

// What Probe can't see a call must tell, but there may be none, or one that tells nothing.
func TestProbeIsCalledAgainIfNoCallTells(t *testing.T) {
	for name, call := range map[string]func(*resilience.Breaker){
		"no call": func(*resilience.Breaker) {},
		"a call that tells nothing": func(b *resilience.Breaker) {
			require.True(t, report(b, resilience.MarkNeutral(errBoom)))
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var backend probedBackend
			backend.up.Store(true)
			b := probed(t, resilience.BreakerConfig{Probe: backend.probe})
			time.Sleep(6 * time.Second)
			require.Equal(t, resilience.StateClosed, b.State())
			asked := backend.asked.Load()
			trip(t, b)
			time.Sleep(30 * time.Second)
			call(b)
			time.Sleep(30 * time.Second)
			require.Equal(t, asked, backend.asked.Load())
			time.Sleep(6 * time.Second)
			assert.Equal(t, resilience.StateClosed, b.State())
		})
	}
}

// Probes that begin late keep calls out for no longer than others: ten Cooldowns since the opening.
func TestLateProbesThatFailKeepCallsOutForTenCooldowns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		backend.up.Store(true)
		b := probed(t, resilience.BreakerConfig{Probe: backend.probe})
		time.Sleep(6 * time.Second)
		require.Equal(t, resilience.StateClosed, b.State())
		trip(t, b)
		backend.up.Store(false)
		time.Sleep(299 * time.Second)
		require.False(t, report(b, nil))
		time.Sleep(2 * time.Second)
		assert.True(t, report(b, nil))
	})
}

func TestProbeEndsWhenTheBreakerChanges(t *testing.T) {
	for name, change := range map[string]func(*resilience.Guard){
		"Reset":   func(g *resilience.Guard) { g.Breaker("x").Reset() },
		"Isolate": func(g *resilience.Guard) { g.Breaker("x").Isolate("r") },
		"Close": func(g *resilience.Guard) {
			n, err := g.Close(context.Background())
			if n != 0 || err != nil {
				panic(err)
			}
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var ended time.Duration
			var log bytes.Buffer
			cfg := configWith(resilience.Tool{})
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			cfg.Breaker.Probe = func(ctx context.Context) error {
				start := time.Now()
				<-ctx.Done()
				ended = time.Since(start)
				return nil
			}
			cfg.Breaker.Cooldown, cfg.Breaker.ProbeInterval = time.Hour, time.Minute
			g := newGuard(t, cfg)
			trip(t, g.Breaker("x"))
			time.Sleep(g.Breaker("x").RetryAfter() + time.Second)
			before := g.Breaker("x").State()
			change(g)
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			assert.Positive(t, ended)
			assert.Less(t, ended, 2*time.Second)
			if name == "Close" {
				assert.Equal(t, before, g.Breaker("x").State())
			}
			require.NoError(t, g.Flush(t.Context()))
			assert.Empty(t, log.String(), "it hasn't crashed")
		})
	}
}

func TestProbeWaitsAsItsErrorAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			err         error
			least, most time.Duration
		}{
			"20s":                 {waitError{20 * time.Second}, 20 * time.Second, 20 * time.Second},
			"more than Cooldown":  {waitError{time.Hour}, 30 * time.Second, 30 * time.Second},
			"what it panics with": {&resilience.PanicError{Value: waitError{20 * time.Second}}, 0, 5 * time.Second},
		} {
			var times []time.Time
			b := probed(t, resilience.BreakerConfig{Probe: func(context.Context) error {
				times = append(times, time.Now())
				return tc.err
			}})
			time.Sleep(2 * time.Minute)
			b.Reset()
			synctest.Wait()
			assert.GreaterOrEqual(t, times[2].Sub(times[1]), tc.least, name)
			assert.LessOrEqual(t, times[2].Sub(times[1]), tc.most, name)
		}
	})
}

// While a call is the probe, as Probe has said nothing, Probe goes on.
func TestProbeGoesOnWhileTheBreakerIsHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		b := probed(t, resilience.BreakerConfig{Probe: func(context.Context) error {
			if up.Load() {
				return nil
			}
			return resilience.MarkInvalid(errBoom)
		}})
		time.Sleep(31 * time.Second)
		probe, err := b.Allow()
		require.NoError(t, err)
		up.Store(true)
		time.Sleep(5 * time.Second)
		assert.Equal(t, resilience.StateClosed, b.State())
		probe(errBoom)
		assert.Zero(t, b.Failures(), "it belongs to an earlier state")
	})
}

func TestBreakersInheritWhatTheyLeaveZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Breaker: "db"})
		cfg.Tools["y"] = resilience.Tool{}
		cfg.Breaker = resilience.BreakerConfig{Failures: 2, Cooldown: time.Minute}
		cfg.Breakers = map[string]resilience.BreakerConfig{"db": {Failures: 1}}
		g := newGuard(t, cfg)
		cfg.Breakers["db"] = resilience.BreakerConfig{Failures: 9}
		for _, tool := range []string{"x", "y", "db"} { // the last isn't listed
			report(g.Breaker(tool), errBoom)
		}
		assert.Equal(t, time.Minute, g.Breaker("x").RetryAfter())
		assert.Equal(t, resilience.StateClosed, g.Breaker("y").State())
		assert.Equal(t, resilience.StateClosed, g.Breaker("db").State())
	})
}

func TestBreakersInheritFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probed atomic.Int64
		var changes []string
		cfg := configWith(resilience.Tool{Breaker: "db"})
		cfg.Breaker = resilience.BreakerConfig{
			Probe: func(context.Context) error { probed.Add(1); return nil },
			Classify: func(err error) resilience.Class {
				if err.Error() == "mistake" {
					return resilience.ClassInvalid
				}
				return resilience.ClassTransient
			},
			OnChange: func(name string, _, to resilience.State) { changes = append(changes, name+" is "+to.String()) },
		}
		cfg.Breakers = map[string]resilience.BreakerConfig{"db": {Failures: 1}}
		b := newGuard(t, cfg).Breaker("x")
		report(b, errors.New("mistake"))
		assert.Equal(t, resilience.StateClosed, b.State())
		report(b, errBoom)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, probed.Load())
		assert.Equal(t, []string{"db is open", "db is closed"}, changes)
	})
}

func TestProbeURLReadsAnswersAsTransportDoes(t *testing.T) {
	var status atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(int(status.Load()))
	}))
	probe := resilience.ProbeURL(server.URL, nil)
	for code, class := range map[int]resilience.Class{
		404: resilience.ClassInvalid, 408: resilience.ClassInvalid, 503: resilience.ClassTransient, 429: resilience.ClassTransient, 500: resilience.ClassTransient,
	} {
		status.Store(int32(code))
		err := probe(t.Context())
		assert.ErrorContains(t, err, strconv.Itoa(code))
		assert.Equal(t, class, resilience.Classify(err), code)
		var asks interface{ RetryAfter() time.Duration }
		assert.Equal(t, class == resilience.ClassTransient, errors.As(err, &asks) && asks.RetryAfter() == 7*time.Second, code)
	}
	for _, code := range []int{200, 204, 304} {
		status.Store(int32(code))
		assert.NoError(t, probe(t.Context()))
	}
	followsNone := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errBoom }}
	redirects := httptest.NewServer(http.RedirectHandler("/login", http.StatusFound))
	defer redirects.Close()
	assert.NoError(t, resilience.ProbeURL(redirects.URL, followsNone)(t.Context()), "it has answered")
	assert.NoError(t, resilience.ProbeURL(redirects.URL, nil)(t.Context()), "and so it has ten times")

	server.Close()
	err := probe(t.Context())
	require.Error(t, err)
	assert.Equal(t, resilience.ClassTransient, resilience.Classify(err))

	for _, wrong := range []string{"", "/healthz", "localhost:80", "http://\x00", "http:///healthz", "//localhost/healthz", "ftp://localhost/"} {
		want := fmt.Sprintf("resilience: ProbeURL: %q isn't an absolute URL of http or https", wrong)
		assert.PanicsWithValue(t, want, func() { resilience.ProbeURL(wrong, nil) })
	}
	assert.NotPanics(t, func() { resilience.ProbeURL("https://localhost/healthz", nil) })
}

// An operator who trips a breaker doesn't say that Probe is blind.
func TestProbeClosesABreakerThatWasTripped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := probed(t, resilience.BreakerConfig{Probe: func(context.Context) error { return nil }})
		time.Sleep(6 * time.Second)
		require.Equal(t, resilience.StateClosed, b.State())
		b.Trip(24 * time.Hour)
		time.Sleep(6 * time.Second)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

func TestRetryAfterWhileProbeRunsAndAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Cooldown = time.Hour
		cfg.Breaker.Probe = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		g := newGuard(t, cfg)
		b := g.Breaker("x")
		trip(t, b)
		time.Sleep(b.RetryAfter())
		assert.Equal(t, time.Second, b.RetryAfter(), "Probe runs, and nobody knows for how long")
		looks := 0
		for start := time.Now(); time.Since(start) < 20*time.Second; looks++ {
			time.Sleep(b.RetryAfter())
		}
		assert.Less(t, looks, 50)

		_, err := g.Close(t.Context())
		require.NoError(t, err)
		assert.Greater(t, b.RetryAfter(), 50*time.Minute, "nobody asks any more")
	})
}

// An answer that breaks off or hangs says no more than none.
func TestProbeURLReadsAnAnswerToItsEnd(t *testing.T) {
	for name, then := range map[string]func(*http.Request){
		"breaks off": func(*http.Request) { panic(http.ErrAbortHandler) },
		"hangs":      func(r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = w.Write([]byte("half"))
				_ = http.NewResponseController(w).Flush()
				then(r)
			}))
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := resilience.ProbeURL(server.URL, server.Client())(ctx)
			require.Error(t, err)
			assert.Equal(t, resilience.ClassTransient, resilience.Classify(err))
		})
	}
}

func TestProbeURLUsesItsClientAndConnectionAgain(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("all is well"))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS() // http.DefaultClient doesn't trust it
	defer server.Close()

	probe := resilience.ProbeURL(server.URL, server.Client())
	for range 3 {
		require.NoError(t, probe(t.Context()))
	}
	assert.EqualValues(t, 1, connections.Load())
}

// A stream answers, and has no end. The end of a huge answer may not come for a long time.
func TestProbeURLDoesNotWaitForTheEndOfAStream(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/huge" {
			w.Header().Set("Content-Length", "1000000000000")
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	for _, path := range []string{"/stream", "/huge"} {
		assert.NoError(t, resilience.ProbeURL(server.URL+path, nil)(t.Context()), path)
	}
}

// A blockingError never says what it is.
type blockingError struct{}

func (blockingError) Error() string { return "blocked" }
func (blockingError) Is(error) bool { select {} }

// What a Probe panics with is a value of the user's, whose methods may do anything.
func TestProbeThatPanicsSaysNothing(t *testing.T) {
	var nilError *url.Error // its methods panic
	for name, value := range map[string]any{
		"a string": "boom", "an error": errBoom, "a timeout": resilience.TimeoutError("x", time.Second),
		"a nil pointer": nilError, "an error whose methods block": blockingError{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {}},
					Breaker: resilience.BreakerConfig{
						Cooldown: 10 * time.Second, Probe: func(context.Context) error { panic(value) },
					},
					Log: slog.New(slog.DiscardHandler),
				})
				g.Breaker("x").Trip(0)
				time.Sleep(11 * time.Second)
				_, err := resilience.Do(t.Context(), g, "x", succeed)
				require.NoError(t, err, "the probe is left to a call")

				g.Breaker("x").Trip(0)
				time.Sleep(6 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				inFlight, err := g.Close(ctx)
				require.NoError(t, err)
				require.Zero(t, inFlight)
			})
		})
	}
}

func TestFailingProbeKeepsCallsOutAlsoAfterALook(t *testing.T) {
	looks := map[string]func(t *testing.T, b *resilience.Breaker){
		"no look": func(*testing.T, *resilience.Breaker) {},
		"State":   func(_ *testing.T, b *resilience.Breaker) { b.State() },
		"a call that says nothing": func(t *testing.T, b *resilience.Breaker) {
			done, err := b.Allow()
			require.NoError(t, err)
			done(resilience.MarkInvalid(errBoom))
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var backend probedBackend
				b := resilience.NewBreaker("x", resilience.BreakerConfig{
					Cooldown: 2 * time.Second, ProbeInterval: 5 * time.Second, Probe: backend.probe,
				})
				b.Trip(0)
				time.Sleep(2400 * time.Millisecond)
				look(t, b)
				for backend.asked.Load() == 0 {
					time.Sleep(100 * time.Millisecond)
				}

				_, err := b.Allow()
				assert.ErrorIs(t, err, resilience.CodeCircuitOpen)
				assert.Equal(t, resilience.StateOpen, b.State())
				assert.Equal(t, 5, b.Failures(), "no call has failed")
				backend.up.Store(true)
				time.Sleep(5 * time.Second)
				assert.Equal(t, resilience.StateClosed, b.State(), "it goes on")
				time.Sleep(time.Minute)
			})
		})
	}
}

// A Probe that fails while the breaker is half-open opens it again, but not for longer than for ten Cooldowns in all.
func TestFailingProbeLeavesTheProbeToACallAfterTenCooldowns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		end := start.Add(20 * time.Second)
		var last time.Time // that the breaker was opened
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			Cooldown: 2 * time.Second, ProbeInterval: 5 * time.Second,
			Probe: func(context.Context) error {
				if left := time.Until(end); left < 4*time.Second {
					time.Sleep(left) // it fails just then
				}
				return errBoom
			},
			OnChange: func(_ string, _, to resilience.State) {
				if to == resilience.StateOpen {
					last = time.Now()
				}
			},
		})
		b.Trip(0)
		for time.Since(start) < 40*time.Second {
			if done, err := b.Allow(); err == nil {
				done(resilience.MarkInvalid(errBoom))
			}
			time.Sleep(100 * time.Millisecond)
		}
		_, err := b.Allow()
		require.NoError(t, err)
		synctest.Wait()
		assert.Less(t, last, end, "it is opened no more")
		b.Reset()
		time.Sleep(time.Minute)
	})
}

func TestTripOfAnOpenBreakerIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		backend.up.Store(true)
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			Cooldown: time.Minute, ProbeInterval: time.Second, Probe: backend.probe,
		})
		trip(t, b)
		time.Sleep(5 * time.Second)
		trip(t, b) // so soon that Probe isn't called
		time.Sleep(5 * time.Second)
		require.Equal(t, resilience.StateOpen, b.State())

		b.Trip(time.Hour)
		time.Sleep(time.Second)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

func TestRetryAfterOfAProbeBeginsAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answered time.Time // Probes follow each other
		var gaps []time.Duration
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Probe: func(context.Context) error {
			if !answered.IsZero() {
				gaps = append(gaps, time.Since(answered))
			}
			time.Sleep(4 * time.Second)
			answered = time.Now()
			return &resilience.Error{Message: "busy", Retryable: true, RetryAfter: 10 * time.Second}
		}})
		trip(t, b)
		time.Sleep(40 * time.Second)
		b.Reset()
		time.Sleep(time.Minute)
		assert.Equal(t, []time.Duration{10 * time.Second, 10 * time.Second}, gaps)
	})
}

// A Probe that respects its context has ended before the next one begins, however short the interval is.
func TestOneProbeRunsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			ProbeInterval: 100 * time.Millisecond,
			Probe: func(ctx context.Context) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				<-ctx.Done()
				return ctx.Err()
			},
		})
		for range 20 {
			b.Trip(time.Minute)
			time.Sleep(101 * time.Millisecond)
			b.Reset()
		}
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, most.Load())
	})
}

func TestProbeThatIsCutOffFails(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"for its context": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"for itself":      func(context.Context) error { return context.Canceled },
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := probed(t, resilience.BreakerConfig{
				Cooldown: 10 * time.Second, ProbeInterval: time.Second, Probe: probe,
			})
			time.Sleep(25 * time.Second)
			assert.Equal(t, resilience.StateOpen, b.State(), "it keeps calls out")
			b.Reset()
			time.Sleep(time.Minute)
		})
	}
}

// Unless Classify knows better.
func TestProbeThatIsCanceledByClassifySaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := probed(t, resilience.BreakerConfig{
			Cooldown: 10 * time.Second, ProbeInterval: time.Second,
			Probe: func(context.Context) error { return context.Canceled },
			Classify: func(err error) resilience.Class {
				if errors.Is(err, context.Canceled) {
					return resilience.ClassCanceled
				}
				return resilience.Classify(err)
			},
		})
		time.Sleep(10 * time.Second)
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		b.Reset()
	})
}

// An operator who trips a breaker for an hour is obeyed, also while Probe fails.
func TestFailingProbeDoesNotShortenATrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			Probe:    func(context.Context) error { return errBoom },
			OnChange: func(string, resilience.State, resilience.State) { changes++ },
		})
		b.Trip(time.Hour)
		for range 59 {
			time.Sleep(time.Minute)
			require.False(t, report(b, nil))
		}
		synctest.Wait()
		assert.Equal(t, 1, changes, "it was opened once")
		time.Sleep(time.Minute)
		assert.True(t, report(b, nil))
	})
}

func TestTripsOfAnOpenBreakerNeitherPutProbeOffNorCallItMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var backend probedBackend
		b := resilience.NewBreaker("x", resilience.BreakerConfig{Probe: backend.probe})
		for range 60 {
			b.Trip(time.Hour)
			time.Sleep(time.Second)
		}
		assert.GreaterOrEqual(t, backend.asked.Load(), int32(12))
		assert.LessOrEqual(t, backend.asked.Load(), int32(24))
		b.Reset()
	})
}

func TestCallThatIsTheProbeDecidesThoughProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		b := probed(t, resilience.BreakerConfig{Probe: func(context.Context) error {
			if down.Load() {
				return errBoom
			}
			return resilience.MarkInvalid(errBoom)
		}})
		time.Sleep(30 * time.Second)
		done, err := b.Allow()
		require.NoError(t, err)
		down.Store(true)
		time.Sleep(10 * time.Second)
		assert.Equal(t, resilience.StateHalfOpen, b.State())
		done(nil)
		assert.Equal(t, resilience.StateClosed, b.State())
	})
}

// What happens to a breaker while Probe runs counts, and not what Probe returns then.
func TestProbeThatEndsTooLateIsNotHeard(t *testing.T) {
	for meanwhile, tc := range map[string]struct {
		do    func(*resilience.Guard)
		state resilience.State
	}{
		"the breaker is isolated": {
			func(g *resilience.Guard) { g.Breaker("x").Isolate("meanwhile") }, resilience.StateIsolated,
		},
		"the guard is closed": {
			func(g *resilience.Guard) { go g.Close(context.Background()); time.Sleep(time.Nanosecond) }, resilience.StateOpen,
		},
	} {
		for name, result := range map[string]error{"success": nil, "failure": errBoom} {
			runInBubble(t, meanwhile+", "+name, func(t *testing.T) {
				var g *resilience.Guard
				calls := 0
				f := new(testFleet)
				g, _ = joined(t, f, resilience.BreakerConfig{Probe: func(context.Context) error {
					calls++
					tc.do(g)
					return result
				}})
				g.Breaker("x").Trip(time.Hour)
				time.Sleep(10 * time.Minute)
				assert.Empty(t, f.told())
				assert.Equal(t, tc.state, g.Breaker("x").State())
				assert.Equal(t, 1, calls, "there is nothing to ask any more")
			})
		}
	}
}

func TestProbeOfABreakerWithoutAGuardMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{
			Probe: func(context.Context) error { panic("no answer") },
		})
		trip(t, b)
		time.Sleep(time.Minute)
		assert.Equal(t, resilience.StateHalfOpen, b.State(), "it says nothing: a call is the probe")
		b.Reset()
		time.Sleep(time.Minute)
	})
}

// What the backend has asked for holds, also when a call has been the probe meanwhile.
func TestProbesHeedTheBackendBesideCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wish = 9 * time.Second
		var begun []time.Time
		busy := resilience.ConnectionLostError("busy")
		busy.RetryAfter = wish
		g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}, Breaker: resilience.BreakerConfig{
			Cooldown: 10 * time.Second, Probe: func(context.Context) error { begun = append(begun, time.Now()); return busy },
		}})
		calls := 0
		for range 600 {
			_, _ = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
				calls++
				return 0, resilience.MarkBackend(errBoom)
			})
			time.Sleep(time.Second)
		}
		require.Greater(t, len(begun), 50)
		assert.Greater(t, calls, 5, "a call is the probe, too")
		for i := range len(begun) - 1 {
			assert.GreaterOrEqual(t, begun[i+1].Sub(begun[i]), wish)
		}
	})
}

// Nor is a call sacrificed while the backend asks for as long as a Cooldown, or longer, and Probe takes its time.
func TestNoCallIsSacrificedWhileTheBackendAsksForTime(t *testing.T) {
	for _, wish := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			busy := resilience.ConnectionLostError("busy")
			busy.RetryAfter = wish
			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}, Breaker: resilience.BreakerConfig{
				Probe: func(context.Context) error { time.Sleep(time.Second); return busy },
			}})
			calls := 0
			for range 290 {
				_, _ = resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) {
					calls++
					return 0, resilience.MarkBackend(errBoom)
				})
				time.Sleep(time.Second)
			}
			assert.Equal(t, 5, calls)
		})
	}
}
