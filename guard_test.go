package resilience_test

import (
	"context"
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
	fn := notCalled(t)
	for name, tc := range map[string]struct {
		ctx  context.Context
		tool string
		fn   toolFunc
		opt  resilience.Option
		want string
	}{
		"empty name":   {t.Context(), "", fn, nil, "VALIDATION_ERROR: The tool's name is empty"},
		"nil function": {t.Context(), "x", nil, nil, "TOOL_NOT_FOUND: Tool 'x' not found: its function is nil"},
		"zero timeout": {
			t.Context(), "x", fn, resilience.Timeout(0),
			"VALIDATION_ERROR: The timeout of this call is 0s: it must be positive",
		},
		"negative timeout": {
			t.Context(), "x", fn, resilience.Timeout(-time.Second),
			"VALIDATION_ERROR: The timeout of this call is -1s: it must be positive",
		},
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
