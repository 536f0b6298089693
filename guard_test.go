package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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
			`"suggestion":"Do not call this tool again before the time in retryAfter has passed; `+
			`go on with other tools meanwhile.","retryable":true,"retryAfter":30}`, jsonOf(t, r.Err))
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
	for name, tc := range map[string]struct {
		ctx  context.Context
		tool string
		fn   toolFunc
		opt  resilience.Option
		want string
	}{
		"empty name": {
			ctx: t.Context(), fn: notCalled(t),
			want: "VALIDATION_ERROR: The tool's name is empty",
		},
		"nil function": {
			ctx: t.Context(), tool: "x",
			want: "TOOL_NOT_FOUND: Tool 'x' not found: its function is nil",
		},
		"zero timeout": {
			ctx: t.Context(), tool: "x", fn: notCalled(t), opt: resilience.Timeout(0),
			want: "VALIDATION_ERROR: The timeout of this call is 0s: it must be positive",
		},
		"negative timeout": {
			ctx: t.Context(), tool: "x", fn: notCalled(t), opt: resilience.Timeout(-time.Second),
			want: "VALIDATION_ERROR: The timeout of this call is -1s: it must be positive",
		},
		"canceled context": {
			ctx: canceled, tool: "x", fn: notCalled(t),
			want: "CANCELED: The call was canceled",
		},
		"context past its deadline": {
			ctx: late, tool: "x", fn: notCalled(t),
			want: "TIMEOUT: Tool 'x' timed out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := resilience.Run(tc.ctx, g, tc.tool, tc.fn, tc.opt)

			assert.EqualError(t, r.Err, tc.want)
			assert.Zero(t, r.Attempts)
		})
	}
	assert.Empty(t, g.Health())
}

func TestCallPanicsWithoutAGuardOrAContext(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	assert.PanicsWithValue(t, "resilience: nil *Guard", func() {
		_, _ = resilience.Do(t.Context(), nil, "x", notCalled(t))
	})
	assert.PanicsWithValue(t, "resilience: nil context", func() {
		_, _ = resilience.Do(noContext, g, "x", notCalled(t))
	})
	assert.PanicsWithValue(t, "resilience: nil context", func() { resilience.All[int](noContext, g) })
}

func TestAllRunsItsCallsAtOnceAndKeepsTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{
			Debug: true,
			Retry: steady,
			Tools: map[string]resilience.Tool{
				"exits": {Cooperative: true}, "quick": {Timeout: time.Second}, "slow": {Timeout: 2 * time.Second},
			},
		})

		start := time.Now()
		results := resilience.All(t.Context(), g,
			resilience.Call[int]{Tool: "slow", Func: hang(1500 * time.Millisecond)},
			resilience.Call[int]{Tool: "quick", Func: hang(time.Hour), Args: map[string]any{"q": 1}},
			resilience.Call[int]{Tool: "none"},
			resilience.Call[int]{Tool: "exits", Func: func(ctx context.Context) (int, error) {
				time.Sleep(500 * time.Millisecond)
				return exit(ctx)
			}},
			resilience.Call[int]{Tool: "panics", Func: panicking("p")},
		)

		assert.Equal(t, 1500*time.Millisecond, time.Since(start), "side by side")
		require.Len(t, results, 5)
		for i, name := range []string{"slow", "quick", "none", "exits", "panics"} {
			assert.Equal(t, name, results[i].Tool)
		}
		assert.Equal(t, resilience.Result[int]{
			Tool: "slow", Value: lateValue, Attempts: 1, Duration: 1500 * time.Millisecond,
		}, results[0])
		assert.ErrorIs(t, results[1].Err, resilience.CodeTimeout)
		assert.Equal(t, map[string]any{"q": 1}, results[1].Err.Details["arguments"])
		assert.ErrorIs(t, results[2].Err, resilience.CodeToolNotFound)
		assert.ErrorIs(t, results[3].Err, resilience.ErrGoexit)
		assert.Equal(t, 1, results[3].Attempts)
		assert.Equal(t, 500*time.Millisecond, results[3].Duration)
		assert.Equal(t, "500ms", results[3].Err.Details["elapsed"])
		assert.ErrorIs(t, results[4].Err, resilience.CodeToolFailed)
		assert.Empty(t, resilience.All[int](t.Context(), g))
		time.Sleep(time.Hour)
	})
}

func TestWrapTakesTheInputForArgumentsUnlessAnOptionGivesThem(t *testing.T) {
	g := newGuard(t, resilience.Config{Debug: true})
	handler := func(context.Context, map[string]any) (int, error) { return 0, errBoom }
	input, option := map[string]any{"from": "input"}, map[string]any{"from": "option"}
	arguments := func(opts ...resilience.Option) any {
		_, err := resilience.Wrap(g, "x", handler, opts...)(t.Context(), input)
		return err.(*resilience.Error).Details["arguments"]
	}

	assert.Equal(t, input, arguments())
	assert.Equal(t, option, arguments(resilience.Args(option)))
}

func TestWrapGuardsAHandler(t *testing.T) {
	type input struct {
		Path   string `json:"path"`
		APIKey string `json:"apiKey"`
	}
	g := newGuard(t, resilience.Config{})
	handler := resilience.Wrap(g, "x", func(_ context.Context, in input) (string, error) {
		if in.Path == "" {
			return "part", errBoom
		}
		return "read " + in.Path, nil
	}, resilience.Debug())

	value, err := handler(t.Context(), input{Path: "a"})
	assert.NoError(t, err)
	assert.Equal(t, "read a", value)

	value, err = handler(t.Context(), input{APIKey: "sk-1"})
	assert.Equal(t, "part", value)
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, map[string]any{"path": "", "apiKey": "[REDACTED]"}, e.Details["arguments"])
}

func TestWrapKeepsNoArgumentsBehindAPointer(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	handler := resilience.Wrap(g, "x", func(context.Context, *struct{}) (string, error) {
		return "", errBoom
	}, resilience.Debug())

	_, err := handler(t.Context(), &struct{}{})

	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	assert.NotContains(t, e.Details, "arguments", "the tool may still write to them")
}

func TestWrapPanicsWithoutAGuardANameOrAHandler(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	handler := func(context.Context, int) (int, error) { return 1, nil }
	assert.PanicsWithValue(t, "resilience: Wrap: nil *Guard", func() { resilience.Wrap(nil, "x", handler) })
	assert.PanicsWithValue(t, "resilience: Wrap: the tool's name is empty", func() { resilience.Wrap(g, "", handler) })
	assert.PanicsWithValue(t, "resilience: Wrap: nil handler for tool 'x'", func() {
		resilience.Wrap[int, int](g, "x", nil)
	})
}

func TestResultMessageTellsAnAgentWhatHappenedAndWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		err  *resilience.Error
		want string
	}{
		"success": {},
		"message and suggestion": {
			err: resilience.TimeoutError("x", time.Second),
			want: "Tool 'x' exceeded timeout of 1s. " +
				"Try again, or use another tool.",
		},
		"message with its own full stop": {err: &resilience.Error{Message: "Stop."}, want: "Stop."},
		"exclamation":                    {err: &resilience.Error{Message: "Stop!"}, want: "Stop!"},
		"question":                       {err: &resilience.Error{Message: "Who?"}, want: "Who?"},
		"code":                           {err: &resilience.Error{Code: "BUSY"}, want: "BUSY."},
		"nothing":                        {err: &resilience.Error{}, want: "The call failed."},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, resilience.Result[int]{Err: tc.err}.Message())
		})
	}
}

func TestErrorOfAToolIsFoundThroughSeveralGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, inner := newGuard(t, resilience.Config{}), newGuard(t, resilience.Config{})
		busy := &resilience.Error{Code: "BUSY", Tool: "t", Message: "m", Suggestion: "s"}
		var seen error

		_, err := resilience.Do(t.Context(), outer, "x", func(ctx context.Context) (int, error) {
			var v int
			v, seen = resilience.Do(ctx, inner, "x", failing(9, busy))
			return v, seen
		})

		assert.ErrorIs(t, err, busy)
		assert.ErrorIs(t, err, seen)
		assert.ErrorIs(t, resilience.AsError("y", err), busy)
	})
}

// A guard is often a package variable: it must work in bubbles and outside of them, one after
// the other and at once.
func TestGuardWorksInAndOutOfBubbles(t *testing.T) {
	g := guardWith(t, resilience.Tool{
		Effect: resilience.ReadOnly,
		Retry:  &resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}},
	})
	use := func(t *testing.T) {
		_, err := resilience.Do(t.Context(), g, "x", failing(2, errBoom))
		assert.NoError(t, err)
		_, err = resilience.Do(t.Context(), g, "x", untilDone, resilience.Timeout(time.Millisecond))
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		g.Health()
	}

	for range 3 {
		use(t)
		synctest.Test(t, func(t *testing.T) {
			use(t)
			synctest.Wait()
		})
	}
}

// Calls of all kinds, with children of their contexts taken at any moment: each call ends by
// its timeouts, with the outcome of what ended it, and all that depends on it ends then.
func TestRandomCallsEndInTimeWithOneOutcome(t *testing.T) {
	for seed := range uint64(500) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newRandomCall(t, seed).run() })
		})
		if !ok {
			return
		}
	}
}

// The kinds of callers of random calls.
const (
	patient      = iota
	leaves       // with a cause
	hasDeadline  // with a cause
	hasOuterCall // with a timeout
	callerKinds
)

// A randomCall is a call of a random tool by a random caller. No two of its times are equal, so
// that it is known what ends it.
type randomCall struct {
	t       *testing.T
	tool    resilience.Tool
	guard   *resilience.Guard
	longest time.Duration // by the tool's own timeouts
	caller  int
	end     time.Duration // brought by the caller, unless it is patient
	cause   error         // of that end
	reports bool          // the tool reports progress

	start    time.Time
	watchers sync.WaitGroup

	mu       sync.Mutex // guards what follows
	random   *rand.Rand
	attempts []int
	ended    []time.Duration // when each watched context ended
}

func newRandomCall(t *testing.T, seed uint64) *randomCall {
	c := &randomCall{t: t, random: rand.New(rand.NewPCG(seed, 1)), cause: errors.New("cause")}

	c.tool = resilience.Tool{
		Effect:      resilience.ReadOnly,
		Timeout:     c.milliseconds(100)*10 + 1*time.Microsecond,
		Cooperative: c.random.IntN(4) == 0,
	}
	c.longest = c.tool.Timeout
	if c.random.IntN(3) == 0 {
		c.tool.MaxTimeout = c.tool.Timeout * 3
		c.longest = c.tool.MaxTimeout
	}

	cfg := resilience.Config{Tools: map[string]resilience.Tool{"x": c.tool}}
	cfg.Retry = resilience.Retry{
		MaxRetries: c.random.IntN(5),
		Backoff:    resilience.Backoff{Base: c.milliseconds(100), Max: c.milliseconds(200) + 100*time.Millisecond},
	}
	if c.random.IntN(2) == 0 {
		cfg.AttemptTimeout = c.milliseconds(300) + 3*time.Microsecond
	}
	cfg.Breaker.Failures = 1
	c.guard = newGuard(t, cfg)

	c.caller, c.end = c.random.IntN(callerKinds), 1<<62
	if c.caller != patient {
		c.end = c.milliseconds(1000) + 7*time.Microsecond
	}
	c.reports = c.random.IntN(2) == 0
	return c
}

// milliseconds returns between one and most of them.
func (c *randomCall) milliseconds(most int) time.Duration {
	return time.Duration(c.random.IntN(most)+1) * time.Millisecond
}

func (c *randomCall) run() {
	ctx, cancel := context.WithCancelCause(c.t.Context())
	defer cancel(nil)
	c.start = time.Now()

	var r resilience.Result[int]
	switch c.caller {
	case leaves:
		time.AfterFunc(c.end, func() { cancel(c.cause) })
		r = resilience.Run(ctx, c.guard, "x", c.work)
	case hasDeadline:
		ctx, cancel := context.WithTimeoutCause(ctx, c.end, c.cause)
		defer cancel()
		r = resilience.Run(ctx, c.guard, "x", c.work)
	case hasOuterCall:
		_, _ = resilience.WithTimeout(ctx, "outer", c.end, func(ctx context.Context) (int, error) {
			r = resilience.Run(ctx, c.guard, "x", c.work)
			return 0, nil
		})
		synctest.Wait()
	default:
		r = resilience.Run(ctx, c.guard, "x", c.work)
	}
	c.check(r)
}

// work is the tool's function.
func (c *randomCall) work(ctx context.Context) (int, error) {
	n := resilience.Attempt(ctx)
	c.mu.Lock()
	c.attempts = append(c.attempts, n)
	duration := c.milliseconds(1500) + 11*time.Microsecond
	ignoresContext := c.random.IntN(3) == 0 && !c.tool.Cooperative
	for _, after := range []time.Duration{0, c.milliseconds(300), c.milliseconds(1500)} {
		c.watch(ctx, after, watches[c.random.IntN(len(watches))])
	}
	outcome := c.random.IntN(4)
	c.mu.Unlock()

	if c.reports {
		resilience.ReportProgress(ctx)
	}
	if ignoresContext {
		time.Sleep(duration)
	} else {
		select {
		case <-due(duration):
		case <-ctx.Done():
			if ctx.Err() == nil || context.Cause(ctx) == nil {
				c.t.Error("Done is closed, but there is no error or no cause")
			}
			return n, ctx.Err()
		}
	}

	switch outcome {
	case 0:
		return n, nil
	case 1:
		return n, resilience.MarkPermanent(errBoom)
	}
	return n, errBoom
}

// watches are the ways in which a tool waits for the end of its context.
var watches = []func(context.Context){
	func(ctx context.Context) { <-ctx.Done() },
	func(ctx context.Context) {
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		<-child.Done()
	},
	func(ctx context.Context) {
		ended := make(chan struct{})
		context.AfterFunc(ctx, func() { close(ended) })
		<-ended
	},
	func(ctx context.Context) {
		type key struct{}
		child, cancel := context.WithTimeout(context.WithValue(ctx, key{}, 2), time.Hour)
		defer cancel()
		<-child.Done()
	},
}

// watch waits for the end of ctx, from a moment after now.
func (c *randomCall) watch(ctx context.Context, after time.Duration, wait func(context.Context)) {
	c.watchers.Go(func() {
		time.Sleep(after)
		wait(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = append(c.ended, time.Since(c.start))
	})
}

func (c *randomCall) check(r resilience.Result[int]) {
	took := r.Duration
	if took > c.longest || took > c.end {
		c.t.Errorf("took %v, but must end by %v and %v", took, c.longest, c.end)
	}

	if r.Err != nil {
		switch {
		case took == c.end && c.caller == leaves:
			assert.Equal(c.t, resilience.CodeCanceled, r.Err.Code)
			assert.ErrorIs(c.t, r.Err, c.cause)
		case took == c.end:
			assert.Equal(c.t, resilience.CodeTimeout, r.Err.Code)
		case took >= c.tool.Timeout && c.tool.MaxTimeout == 0:
			assert.Equal(c.t, resilience.CodeTimeout, r.Err.Code)
		}
		if took == c.end {
			assert.Equal(c.t, resilience.StateClosed, c.guard.Breaker("x").State())
		}
	}

	synctest.Wait()
	c.mu.Lock()
	for _, at := range c.ended {
		assert.LessOrEqual(c.t, at, took, "all contexts have ended with the call")
	}
	c.mu.Unlock()
	assert.Zero(c.t, c.guard.Health()[0].InFlight)

	time.Sleep(time.Hour)
	c.watchers.Wait()
	assert.Zero(c.t, c.guard.Health()[0].Abandoned)
	for i, n := range c.attempts {
		assert.Equal(c.t, i+1, n)
	}
}
