package resilience_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type ctxKey string

// A recorder keeps the events that its observer receives.
type recorder struct {
	mu     sync.Mutex // because Start is called concurrently
	events []any
}

func (r *recorder) add(event any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) observer() resilience.Observer {
	return resilience.Observer{
		Start:   func(_ context.Context, e resilience.CallStart) context.Context { r.add(e); return nil },
		Retry:   func(_ context.Context, e resilience.CallRetry) { r.add(e) },
		End:     func(_ context.Context, e resilience.CallEnd) { r.add(e) },
		Late:    func(_ context.Context, e resilience.LateResult) { r.add(e) },
		Breaker: func(e resilience.BreakerChange) { r.add(e) },
	}
}

// received returns the events of one type.
func received[E any](r *recorder) (events []E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			events = append(events, e)
		}
	}
	return events
}

// observed returns configWith(x) with observers.
func observed(x resilience.Tool, all ...resilience.Observer) resilience.Config {
	cfg := configWith(x)
	cfg.Observers = all
	return cfg
}

// observedGuard returns a guard with observers.
func observedGuard(t *testing.T, x resilience.Tool, all ...resilience.Observer) *resilience.Guard {
	t.Helper()
	return newGuard(t, observed(x, all...))
}

// loggedGuard returns a guard with observers, and its log.
func loggedGuard(t *testing.T, x resilience.Tool, all ...resilience.Observer) (*resilience.Guard, *bytes.Buffer) {
	t.Helper()
	log, out := textLog(slog.LevelInfo)
	cfg := observed(x, all...)
	cfg.Log = log
	return newGuard(t, cfg), out
}

// flush waits, in a bubble, until the observers have received everything.
func flush(t *testing.T, g *resilience.Guard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, g.Flush(ctx))
}

// mustSucceed makes a call that must succeed.
func mustSucceed(t *testing.T, g *resilience.Guard) {
	t.Helper()
	_, err := resilience.Do(t.Context(), g, "x", succeed)
	require.NoError(t, err)
}

func unfinished(context.Context) (int, error) { return 1, resilience.ErrUnfinished }

// An endCase is a call, and the end of it that observers must receive.
type endCase struct {
	fn       toolFunc
	opt      resilience.Option
	unnamed  bool
	canceled bool // before the call
	open     bool // the breaker is open

	code       resilience.Code // empty if the call succeeds
	timeout    time.Duration
	attempts   int
	unfinished bool
	counted    bool
}

func TestObserverReceivesOneStartAndOneEndOfEachCall(t *testing.T) {
	permanent, mistake := resilience.MarkPermanent(errBoom), resilience.MarkInvalid(errBoom)
	short := resilience.Timeout(time.Second)
	for name, tc := range map[string]endCase{
		"success":         {fn: succeed, timeout: time.Minute, attempts: 1},
		"success at last": {fn: failing(2, errBoom), timeout: time.Minute, attempts: 3},
		"unfinished":      {fn: unfinished, unfinished: true, timeout: time.Minute, attempts: 1},
		"failure":         {fn: failing(9, permanent), code: failed, timeout: time.Minute, attempts: 1, counted: true},
		"panic":           {fn: panicking("p"), code: failed, timeout: time.Minute, attempts: 1, counted: true},
		"goexit":          {fn: exit, code: failed, timeout: time.Minute, attempts: 1, counted: true},
		"exhausted":       {fn: failing(9, errBoom), code: exhausted, timeout: time.Minute, attempts: 4, counted: true},
		"timeout":         {fn: untilDone, code: timedOut, timeout: time.Minute, attempts: 1, counted: true},
		"short timeout":   {fn: untilDone, opt: short, code: timedOut, timeout: time.Second, attempts: 1},
		"mistake":         {fn: failing(9, mistake), code: invalid, timeout: time.Minute, attempts: 1},
		"open breaker":    {fn: succeed, open: true, code: resilience.CodeCircuitOpen, timeout: time.Minute},
		"no name":         {fn: succeed, unnamed: true, code: invalid},
		"no function":     {code: resilience.CodeToolNotFound},
		"invalid timeout": {fn: succeed, opt: resilience.Timeout(-1), code: invalid},
		"canceled":        {fn: succeed, canceled: true, code: resilience.CodeCanceled},
	} {
		t.Run(name, func(t *testing.T) { inBothModes(t, tc.run) })
	}
}

func (tc endCase) run(t *testing.T, cooperative bool) {
	var r recorder
	g := observedGuard(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative}, r.observer())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if tc.canceled {
		cancel()
	}
	tool, opts := "x", []resilience.Option{}
	if tc.opt != nil {
		opts = append(opts, tc.opt)
	}
	if tc.unnamed {
		tool = ""
	}
	if tc.open {
		trip(t, g.Breaker("x"))
	}

	start := time.Now()
	done := make(chan struct{})
	go func() { // a goroutine that a Cooperative tool may end
		defer close(done)
		_, _ = resilience.Do(ctx, g, tool, tc.fn, opts...)
	}()
	<-done
	duration := time.Since(start)
	flush(t, g)

	assert.Equal(t, []resilience.CallStart{{Tool: tool, Time: start}}, received[resilience.CallStart](&r))
	ends := received[resilience.CallEnd](&r)
	require.Len(t, ends, 1)
	e := ends[0]
	assert.Equal(t, tool, e.Tool)
	assert.Equal(t, tc.attempts, e.Attempts)
	assert.Equal(t, tc.timeout, e.Timeout)
	assert.Equal(t, duration, e.Duration)
	assert.Equal(t, start.Add(duration), e.Time)
	assert.Equal(t, tc.unfinished, e.Unfinished)
	assert.Equal(t, tc.counted, e.Counted)
	assert.Nil(t, e.Arguments)

	if tc.code == "" {
		assert.Nil(t, e.Err)
	} else {
		assert.ErrorIs(t, e.Err, tc.code)
	}
	at, delay := start, 100*time.Millisecond
	for i, e := range received[resilience.CallRetry](&r) {
		want := resilience.CallRetry{Tool: "x", Label: "x", Time: at, Attempt: i + 1, Delay: delay, Err: errBoom}
		assert.Equal(t, want, e)
		at, delay = at.Add(delay), 2*delay
	}
	assert.Len(t, received[resilience.CallRetry](&r), max(tc.attempts-1, 0))
}

// Agents make up names of tools, which must not become labels of metrics.
func TestObserverReceivesABoundedNumberOfLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := observedGuard(t, resilience.Tool{}, r.observer())
		unknown := resilience.ForRequest(resilience.Request{Unknown: true})
		_, _ = resilience.Do(t.Context(), g, "unlisted", succeed)
		_, _ = resilience.Do(t.Context(), g, "unlisted", succeed)
		_, _ = resilience.Do(t.Context(), g, "x", notCalled(t), resilience.Timeout(-1))
		_, _ = resilience.Do(t.Context(), g, "made up", succeed, unknown)
		_, _ = resilience.Do(t.Context(), g, "made up", notCalled(t), resilience.Timeout(-1))
		_, _ = resilience.Do(t.Context(), g, strings.Repeat("y", 300), succeed)
		flush(t, g)

		var labels []string
		for _, e := range received[resilience.CallEnd](&r)[1:] {
			labels = append(labels, e.Label)
		}
		assert.Equal(t, []string{"unlisted", "x", "(others)", "(others)", "(others)"}, labels)
	})
}

func TestObserverReceivesALateResult(t *testing.T) {
	for name, tc := range map[string]struct {
		end  toolFunc
		err  error
		late time.Duration
	}{
		"succeeds":     {end: succeed, late: 30 * time.Second},
		"fails":        {end: failing(9, errBoom), err: errBoom, late: 30 * time.Second},
		"panics":       {end: panicking(errBoom), err: errBoom, late: 30 * time.Second},
		"calls Goexit": {end: exit, err: resilience.ErrGoexit, late: 30 * time.Second},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var r recorder
			tool := resilience.Tool{Effect: resilience.NonIdempotent}
			g := observedGuard(t, tool, r.observer())
			start := time.Now()
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				time.Sleep(90 * time.Second)
				return tc.end(ctx)
			})
			require.ErrorIs(t, err, resilience.CodeTimeout)
			assert.Empty(t, received[resilience.LateResult](&r))
			time.Sleep(2 * time.Minute)

			late := received[resilience.LateResult](&r)
			require.Len(t, late, 1)
			assert.ErrorIs(t, late[0].Err, tc.err)
			late[0].Err = nil
			want := resilience.LateResult{Tool: "x", Label: "x", Time: start.Add(90 * time.Second), Late: tc.late}
			assert.Equal(t, want, late[0])
			assert.Len(t, received[resilience.CallEnd](&r), 1)
		})
	}
}

// A tool respects its context if it returns the context's error within a second of its end.
func TestObserverReceivesNoLateResultOfAToolThatRespectsItsContext(t *testing.T) {
	wrapped := func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }
	for name, tc := range map[string]struct {
		takes time.Duration
		err   func(context.Context) error
		late  int
	}{
		"its error":     {0, context.Context.Err, 0},
		"its cause":     {time.Millisecond, context.Cause, 0},
		"wrapped":       {time.Second - 2*time.Nanosecond, wrapped, 0},
		"slow":          {time.Second, context.Context.Err, 1},
		"another error": {0, func(context.Context) error { return errBoom }, 1},
		"success":       {0, func(context.Context) error { return nil }, 1},
		"panic":         {0, func(ctx context.Context) error { panic(ctx.Err()) }, 1},
	} {
		for code, by := range map[resilience.Code]caller{
			resilience.CodeCanceled: leavingAfter(time.Second), resilience.CodeTimeout: context.WithCancel,
		} {
			runInBubble(t, name+", "+string(code), func(t *testing.T) {
				var r recorder
				g := observedGuard(t, resilience.Tool{Timeout: 2 * time.Second}, r.observer())
				ctx, cancel := by(t.Context())
				defer cancel()

				_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					time.Sleep(1 + tc.takes) // so that the attempt is abandoned
					return 0, tc.err(ctx)
				})
				require.ErrorIs(t, err, code)
				time.Sleep(time.Minute)
				assert.Len(t, received[resilience.LateResult](&r), tc.late)
			})
		}
	}
}

// The time of Start isn't part of the call's.
func TestObserverStartUsesUpNoneOfTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		slow := resilience.Observer{Start: func(context.Context, resilience.CallStart) context.Context {
			time.Sleep(90 * time.Millisecond)
			return nil
		}}
		g := observedGuard(t, resilience.Tool{Timeout: 50 * time.Millisecond}, slow, slow, r.observer())

		result := resilience.Run(t.Context(), g, "x", hang(40*time.Millisecond))
		flush(t, g)
		assert.Nil(t, result.Err)
		assert.Equal(t, 40*time.Millisecond, result.Duration)
		assert.Equal(t, result.Duration, received[resilience.CallEnd](&r)[0].Duration)

		_, err := resilience.Do(t.Context(), g, "x", untilDone)
		assert.ErrorIs(t, err, resilience.CodeTimeout)
	})
}

// A span of Start, for example, reaches the tool, the other observers, calls within the tool, and End.
func TestObserverAddsValuesToTheContextOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = ctxKey("calls")
		calls := func(ctx context.Context) int { return ctx.Value(key).(int) }
		var ended []int
		adds := resilience.Observer{
			Start: func(ctx context.Context, e resilience.CallStart) context.Context {
				assert.Equal(t, "tools/call", e.Request.Method)
				return context.WithValue(ctx, key, calls(ctx)+1)
			},
			End: func(ctx context.Context, _ resilience.CallEnd) { ended = append(ended, calls(ctx)) },
		}
		addsNothing := (&recorder{}).observer()
		g := observedGuard(t, resilience.Tool{}, adds, addsNothing, resilience.Observer{Start: adds.Start})
		request := resilience.ForRequest(resilience.Request{RequestInfo: resilience.RequestInfo{Method: "tools/call"}})

		ctx := context.WithValue(t.Context(), key, 0)
		inner, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			assert.Equal(t, 2, calls(ctx))
			count := func(ctx context.Context) (int, error) { return calls(ctx), nil }
			return resilience.Do(ctx, g, "y", count, request)
		}, request)
		flush(t, g)

		assert.NoError(t, err)
		assert.Equal(t, 4, inner)
		assert.ElementsMatch(t, []int{2, 4}, ended)
	})
}

func TestObserverThatPanicsAffectsNeitherCallsNorOtherObservers(t *testing.T) {
	for _, noStart := range []bool{false, true} {
		runInBubble(t, fmt.Sprint(noStart), func(t *testing.T) {
			var r recorder
			bad := resilience.Observer{
				Start:   func(context.Context, resilience.CallStart) context.Context { panic("p") },
				Retry:   func(context.Context, resilience.CallRetry) { panic("p") },
				End:     func(context.Context, resilience.CallEnd) { panic("p") },
				Late:    func(context.Context, resilience.LateResult) { panic("p") },
				Breaker: func(resilience.BreakerChange) { panic("p") },
			}
			if noStart {
				bad.Start = nil
			}
			tool := resilience.Tool{Effect: resilience.ReadOnly}
			g, log := loggedGuard(t, tool, bad, r.observer(), resilience.Observer{})
			for range 20 {
				_, err := resilience.Do(t.Context(), g, "x", failing(1, errBoom))
				require.NoError(t, err)
			}
			_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
			require.ErrorIs(t, err, resilience.CodeTimeout)
			trip(t, g.Breaker("another"))
			time.Sleep(time.Hour)
			flush(t, g)

			assert.Len(t, received[resilience.CallStart](&r), 21)
			assert.Len(t, received[resilience.CallRetry](&r), 20)
			assert.Len(t, received[resilience.CallEnd](&r), 21)
			assert.Len(t, received[resilience.LateResult](&r), 1)
			assert.Len(t, received[resilience.BreakerChange](&r), 1)
			assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
			assert.Contains(t, log.String(), "Observers[0] panicked")
		})
	}
}

// The caller and an observer may modify the error that they receive. The arguments are redacted.
func TestObserverReceivesCopiesOfTheErrorAndItsDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var end resilience.CallEnd
		cfg := observed(resilience.Tool{}, resilience.Observer{End: func(_ context.Context, e resilience.CallEnd) {
			e.Err.Suggestion = "changed"
			end = e
		}})
		cfg.Debug = true
		g := newGuard(t, cfg)

		r := resilience.Run(t.Context(), g, "x", failing(9, resilience.MarkPermanent(errBoom)),
			resilience.Args(map[string]any{"password": "p", "q": map[string]any{"n": 1}}))
		r.Err.Details["arguments"].(map[string]any)["q"].(map[string]any)["n"] = 2
		r.Err.Details["more"] = true
		flush(t, g)

		assert.NotEqual(t, "changed", r.Err.Suggestion)
		assert.Equal(t, map[string]any{"password": "[REDACTED]", "q": map[string]any{"n": 1}}, end.Arguments)
		assert.Equal(t, end.Arguments, end.Err.Details["arguments"])
		assert.NotContains(t, end.Err.Details, "more")
	})
}
