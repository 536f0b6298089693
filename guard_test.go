package resilience_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestToolsMayShareABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
			"cypher": {Breaker: "neo4j"}, "impact": {Breaker: "neo4j"}, "read": {},
		}})
		assert.Same(t, g.Breaker("cypher"), g.Breaker("impact"))
		assert.NotSame(t, g.Breaker("cypher"), g.Breaker("neo4j"), "an agent may have made up a tool of that name")

		for range 5 {
			_, err := resilience.Do(t.Context(), g, "cypher", failing(9, errBoom))
			require.ErrorIs(t, err, errBoom)
		}
		r := resilience.Run(t.Context(), g, "impact", succeed)
		assert.Zero(t, r.Attempts)
		assert.Equal(t, `{"code":"CIRCUIT_OPEN","tool":"impact",`+
			`"message":"Circuit breaker open due to repeated failures. Calls are rejected for 30 more seconds.",`+
			`"suggestion":"Do not call this tool for 30 seconds; use others.","retryable":true,"retryAfter":30}`,
			jsonOf(t, r.Err))
		_, err := resilience.Do(t.Context(), g, "read", succeed)
		assert.NoError(t, err)

		time.Sleep(30*time.Second + 1)
		_, err = resilience.Do(t.Context(), g, "impact", succeed)
		assert.NoError(t, err)
		assert.Equal(t, resilience.StateClosed, g.Breaker("cypher").State())
	})
}

func TestInvalidCallIsNotMadeAndLeavesNoTrace(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	canceled, late := endedContexts(t)
	now, fn := t.Context(), notCalled(t)
	const wrong = "VALIDATION_ERROR: The timeout of this call is "
	for name, tc := range map[string]struct {
		ctx  context.Context
		tool string
		fn   toolFunc
		opt  resilience.Option
		want string
	}{
		"empty name":                {now, "", fn, nil, "VALIDATION_ERROR: The tool's name is empty"},
		"nil function":              {now, "x", nil, nil, "TOOL_NOT_FOUND: Tool 'x' not found: its function is nil"},
		"a timeout of zero":         {now, "x", fn, resilience.Timeout(0), wrong + "0s: it must be positive"},
		"a negative timeout":        {now, "x", fn, resilience.Timeout(-1), wrong + "-1ns: it must be positive"},
		"canceled context":          {canceled, "x", fn, nil, "CANCELED: The call was canceled"},
		"context past its deadline": {late, "x", fn, nil, "TIMEOUT: Tool 'x' timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			r := resilience.Run(tc.ctx, g, tc.tool, tc.fn, tc.opt)

			assert.EqualError(t, r.Err, tc.want)
			assert.Zero(t, r.Attempts)
		})
	}
	assert.Empty(t, g.Health())
}

func TestMisuseByTheProgramPanics(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	handler := func(context.Context, int) (int, error) { return 1, nil }
	for want, misuse := range map[string]func(){
		"resilience: nil *Guard":  func() { _, _ = resilience.Do(t.Context(), nil, "x", notCalled(t)) },
		"resilience: nil context": func() { _, _ = resilience.Do(noContext, g, "x", notCalled(t)) },

		"resilience: Wrap: nil *Guard":               func() { resilience.Wrap(nil, "x", handler) },
		"resilience: Wrap: the tool's name is empty": func() { resilience.Wrap(g, "", handler) },
		"resilience: Wrap: nil handler for tool 'x'": func() { resilience.Wrap[int, int](g, "x", nil) },
	} {
		assert.PanicsWithValue(t, want, misuse)
	}
	assert.PanicsWithValue(t, "resilience: nil context", func() { resilience.All[int](noContext, g) })
}

func TestAllRunsItsCallsAtOnceAndKeepsTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Debug: true,
			Tools: map[string]resilience.Tool{"exits": {Cooperative: true}, "quick": {Timeout: time.Second}},
		})

		results := resilience.All(t.Context(), g,
			resilience.Call[int]{Tool: "slow", Func: hang(1500 * time.Millisecond)},
			resilience.Call[int]{Tool: "quick", Func: hang(time.Hour), Args: map[string]any{"q": 1}},
			resilience.Call[int]{Tool: "none"},
			resilience.Call[int]{Tool: "exits", Func: exit},
			resilience.Call[int]{Tool: "panics", Func: panicking("p")},
		)

		assert.Equal(t, resilience.Result[int]{
			Tool: "slow", Value: lateValue, Attempts: 1, Duration: 1500 * time.Millisecond,
		}, results[0], "the calls run side by side")
		for i, want := range []struct {
			tool string
			err  error
		}{
			{"slow", nil}, {"quick", resilience.CodeTimeout}, {"none", resilience.CodeToolNotFound},
			{"exits", resilience.ErrGoexit}, {"panics", resilience.CodeToolFailed},
		} {
			assert.Equal(t, want.tool, results[i].Tool)
			if want.err != nil {
				assert.ErrorIs(t, results[i].Err, want.err)
			}
		}
		assert.Equal(t, map[string]any{"q": 1}, results[1].Err.Details["arguments"])
		assert.Empty(t, resilience.All[int](t.Context(), g))
		time.Sleep(time.Hour)
	})
}

func TestWrapGuardsAHandler(t *testing.T) {
	type input struct {
		Path   string `json:"path"`
		APIKey string `json:"apiKey"`
	}
	g := newGuard(t, resilience.Config{Debug: true})
	read := func(_ context.Context, in input) (string, error) {
		if in.Path == "" {
			return "part", errBoom
		}
		return "read " + in.Path, nil
	}
	details := func(err error) map[string]any { return err.(*resilience.Error).Details }
	handler := resilience.Wrap(g, "x", read)

	value, err := handler(t.Context(), input{Path: "a"})
	assert.NoError(t, err)
	assert.Equal(t, "read a", value)

	value, err = handler(t.Context(), input{APIKey: "sk-1"})
	assert.Equal(t, "part", value)
	assert.Equal(t, map[string]any{"path": "", "apiKey": "[REDACTED]"}, details(err)["arguments"])

	option := map[string]any{"from": "option"}
	_, err = resilience.Wrap(g, "x", read, resilience.Args(option))(t.Context(), input{})
	assert.Equal(t, option, details(err)["arguments"])

	fail := func(context.Context, *input) (int, error) { return 0, errBoom }
	_, err = resilience.Wrap(g, "x", fail)(t.Context(), &input{})
	assert.NotContains(t, details(err), "arguments", "the tool may still write to them")
}

func TestResultMessageTellsAnAgentWhatHappenedAndWhatToDo(t *testing.T) {
	timeout := "Tool 'x' exceeded timeout of 1s. Try again later."
	for want, err := range map[string]*resilience.Error{
		"":                 nil,
		timeout:            resilience.TimeoutError("x", time.Second),
		"Stop.":            {Message: "Stop."},
		"Stop!":            {Message: "Stop!"},
		"Who?":             {Message: "Who?"},
		"BUSY.":            {Code: "BUSY"},
		"The call failed.": {},
	} {
		assert.Equal(t, want, resilience.Result[int]{Err: err}.Message())
	}
}

// A guard is often a package variable: it must work in bubbles and outside of them, one after
// the other and at once.
func TestGuardWorksInAndOutOfBubbles(t *testing.T) {
	var r recorder
	g := observedGuard(t, resilience.Tool{
		Effect: resilience.ReadOnly,
		Retry:  &resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}},
	}, r.observer())
	use := func(t *testing.T) {
		_, err := resilience.Do(t.Context(), g, "x", failing(2, errBoom))
		assert.NoError(t, err)
		_, err = resilience.Do(t.Context(), g, "x", untilDone, resilience.Timeout(time.Millisecond))
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		g.Health()
		assert.NoError(t, g.Flush(t.Context()))
	}

	for range 3 {
		use(t)
		synctest.Test(t, func(t *testing.T) {
			use(t)
			synctest.Wait()
		})
	}
}

func TestCloseWaitsForCallsInFlightAndTheirObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		g := observedGuard(t, resilience.Tool{}, ending(func() {
			time.Sleep(time.Second) // it is slow
			ended.Add(1)
		}))
		answers := make(chan error, 2)
		for _, tool := range []string{"x", "unlisted"} {
			go func() {
				_, err := resilience.Do(t.Context(), g, tool, func(ctx context.Context) (int, error) {
					time.Sleep(10 * time.Second)
					// A tool in the middle of its work goes on, also to undo it after its caller has left.
					return resilience.Do(context.WithoutCancel(ctx), g, "inner", succeed)
				})
				answers <- err
			}()
		}
		synctest.Wait()

		assert.False(t, g.Closed())
		start := time.Now()
		n, err := g.Close(t.Context())
		assert.True(t, g.Closed())
		assert.Zero(t, n)
		assert.NoError(t, err)
		took := time.Since(start)
		assert.InDelta(t, 14*time.Second, took, float64(time.Second), "10s for the calls, 4s for their ends")
		assert.NoError(t, <-answers)
		assert.NoError(t, <-answers)
		assert.EqualValues(t, 4, ended.Load())

		for _, tool := range []string{"x", "unlisted", "new"} {
			r := resilience.Run(t.Context(), g, tool, notCalled(t))
			assert.Equal(t, resilience.CodeShuttingDown, r.Err.Code)
			assert.Equal(t, "The server is shutting down", r.Err.Message)
			assert.True(t, r.Err.Retryable)
		}
		for _, h := range g.Health() {
			assert.Zero(t, h.ConsecutiveFailures, h.Tool)
			assert.False(t, h.Available, h.Tool)
		}
		_, err = g.Close(t.Context())
		assert.NoError(t, err, "a second time")
	})
}

func TestCloseReturnsHowManyCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: time.Hour})
		var returned sync.WaitGroup
		for range 3 {
			returned.Go(func() { _, _ = resilience.Do(t.Context(), g, "x", hang(time.Minute)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		n, err := g.Close(ctx)
		assert.Equal(t, 3, n)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, 10*time.Second, time.Since(start), float64(time.Second))

		returned.Wait()
		n, err = g.Close(t.Context())
		assert.Zero(t, n)
		assert.NoError(t, err)
	})
}

// Abandoned attempts may run for ever.
func TestCloseDoesNotWaitForAbandonedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: time.Second})
		_, err := resilience.Do(t.Context(), g, "x", hang(time.Hour))
		require.ErrorIs(t, err, resilience.CodeTimeout)
		n, err := g.Close(t.Context())
		assert.Zero(t, n)
		assert.NoError(t, err)
		time.Sleep(time.Hour)
	})
}

// A job that continues after its call has returned isn't a call in flight.
func TestCloseRejectsCallsOfAJobThatACallHasLeftBehind(t *testing.T) {
	g := guardWith(t, resilience.Tool{})
	var left context.Context
	_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		left = ctx
		closing, cancel := context.WithCancel(ctx)
		cancel()
		n, err := g.Close(closing)
		assert.Equal(t, 1, n)
		assert.ErrorIs(t, err, context.Canceled)
		return resilience.WithTimeout(ctx, "part", time.Second, func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "y", succeed)
		})
	})
	require.NoError(t, err)
	_, err = resilience.Do(context.WithoutCancel(left), g, "y", notCalled(t))
	assert.ErrorIs(t, err, resilience.CodeShuttingDown)
}

// However calls and Close interleave, each call is either rejected or has ended when Close returns, and clients that go
// on calling don't keep Close from returning.
func TestCloseMissesNoCall(t *testing.T) {
	for range 100 {
		g := guardWith(t, resilience.Tool{})
		var running, calls atomic.Int32
		var stop atomic.Bool
		var clients sync.WaitGroup
		work := func(context.Context) (int, error) {
			calls.Add(1)
			running.Add(1)
			defer running.Add(-1)
			runtime.Gosched()
			return 0, nil
		}
		for range 8 {
			clients.Go(func() {
				for !stop.Load() {
					if _, err := resilience.Do(t.Context(), g, "x", work); err != nil {
						assert.ErrorIs(t, err, resilience.CodeShuttingDown)
					}
				}
			})
		}
		for calls.Load() < 16 {
			runtime.Gosched()
		}

		n, err := g.Close(contextWithin(t, time.Minute))
		assert.NoError(t, err)
		assert.Zero(t, n)
		assert.Zero(t, running.Load())
		before := calls.Load()
		stop.Store(true)
		clients.Wait()
		assert.Equal(t, before, calls.Load())
	}
}
