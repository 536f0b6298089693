package resilience_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// from is a request of an agent with arguments.
func from(agent, arguments string) resilience.Option {
	return resilience.ForRequest(resilience.Request{Caller: agent, Arguments: json.RawMessage(arguments)})
}

// A tool acts for 20 seconds, whatever its context does. Its first caller leaves after 5. The same call is made again.
func TestTheSameCallActsOnce(t *testing.T) {
	const s = time.Second
	key := resilience.Once("k")
	answers := resilience.Request{Caller: "a", Arguments: json.RawMessage(`{"n": 1, "to": "b"}`), Input: []any{"yes"}}
	program := resilience.ForRequest(resilience.Request{
		RequestInfo: resilience.RequestInfo{Client: true}, Caller: "a", Arguments: json.RawMessage("1"),
	})
	const big = "900719925474099" // 2 and 3 behind it are the same float64
	ours := from("a", `{"n": 1, "to": "b"}`)
	fails := func(ctx context.Context) (int, error) {
		time.Sleep(20 * s)
		return 0, resilience.MarkPermanent(errBoom)
	}
	for name, tc := range map[string]struct {
		cfg           resilience.Config
		tool          resilience.Tool
		first, second resilience.Option // ours if nil
		fn            toolFunc
		after         time.Duration // from the first call to the second
		runs          int
		took          time.Duration // 20s if it is made at once
		joined        time.Duration
	}{
		"while the tool runs":       {after: 6 * s, runs: 1, took: 14 * s, joined: 20 * s},
		"after it has succeeded":    {after: 100 * s, runs: 1, joined: 100 * s},
		"after OnceFor":             {after: 150 * s, runs: 2},
		"after another OnceFor":     {cfg: resilience.Config{OnceFor: s}, after: 22 * s, runs: 2},
		"with OnceFor off":          {cfg: resilience.Config{OnceFor: -1}, after: 6 * s, runs: 2},
		"before the caller left":    {after: 4 * s, runs: 2},
		"while the tool fails":      {fn: fails, after: 6 * s, runs: 2, took: 34 * s},
		"after it has failed":       {fn: fails, after: 25 * s, runs: 2},
		"of a tool that reads":      {tool: resilience.Tool{Effect: resilience.ReadOnly}, after: 6 * s, runs: 2},
		"with the keys reordered":   {second: from("a", `{"to":"b","n":1}`), after: 30 * s, runs: 1, joined: 30 * s},
		"with other arguments":      {second: from("a", `{"n":1,"to":"c"}`), after: 30 * s, runs: 2},
		"with another large number": {first: from("a", big+"2"), second: from("a", big+"3"), after: 30 * s, runs: 2},
		"by another agent":          {second: from("b", `{"n": 1, "to": "b"}`), after: 30 * s, runs: 2},
		"without arguments":         {first: from("a", ""), second: from("a", ""), after: 30 * s, runs: 2},
		"by an unknown agent":       {first: from("", "1"), second: from("", "1"), after: 30 * s, runs: 2},
		"with an input":             {second: resilience.ForRequest(answers), after: 30 * s, runs: 2},
		"of a program":              {first: program, second: program, after: 30 * s, runs: 2},
		"by its key":                {first: key, second: key, after: 30 * s, runs: 1, joined: 30 * s},
		"by another key":            {first: key, second: resilience.Once("l"), after: 30 * s, runs: 2},
	} {
		runInBubble(t, name, func(t *testing.T) {
			tc.cfg.Tools = map[string]resilience.Tool{"x": tc.tool}
			g := newGuard(t, tc.cfg)
			option := func(o resilience.Option) resilience.Option {
				if o == nil {
					return ours
				}
				return o
			}
			var runs atomic.Int64
			fn := func(ctx context.Context) (int, error) {
				runs.Add(1)
				if tc.fn != nil {
					return tc.fn(ctx)
				}
				return hang(20 * s)(ctx)
			}

			leaving, cancel := leavingAfter(5 * s)(t.Context())
			defer cancel()
			go resilience.Run(leaving, g, "x", fn, option(tc.first))
			time.Sleep(tc.after)
			r := resilience.Run(t.Context(), g, "x", fn, option(tc.second))
			assert.EqualValues(t, tc.runs, runs.Load())
			if tc.runs == 2 && tc.took == 0 {
				tc.took = 20 * s
			}
			assert.Equal(t, tc.took, r.Duration.Truncate(s))
			assert.Equal(t, tc.joined, r.Joined.Truncate(s))
			assert.Equal(t, tc.fn == nil, r.Err == nil, r.Err)
			if tc.joined > 0 {
				assert.Equal(t, lateValue, r.Value)
				assert.Zero(t, r.Attempts)
				assert.Contains(t, r.Message(), "This is the result of the same call made ")
			}
			assert.Zero(t, g.Health()[0].InFlight)
			time.Sleep(time.Hour)
		})
	}
}

// An agent that sends a call twice on purpose has received the outcome of the first.
func TestACallWhoseOutcomeWasReceivedIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
		var runs atomic.Int64
		call := func(fn toolFunc) resilience.Result[int] {
			return resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				runs.Add(1)
				return fn(ctx)
			}, from("a", "{}"))
		}
		call(succeed)
		call(failing(1, resilience.MarkPermanent(errBoom)))
		call(succeed)
		assert.EqualValues(t, 3, runs.Load())

		assert.ErrorIs(t, call(hang(15*time.Second)).Err, resilience.CodeTimeout)
		assert.Equal(t, lateValue, call(succeed).Value, "it joins the one that timed out")
		assert.EqualValues(t, 4, runs.Load())
		assert.Equal(t, 1, call(succeed).Value, "its result was received")
		assert.ErrorIs(t, call(failingAfter(15*time.Second, context.Canceled)).Err, resilience.CodeTimeout)
		time.Sleep(10 * time.Second)
		assert.Equal(t, 1, call(succeed).Value, "its caller knows that it may have acted")
		assert.EqualValues(t, 7, runs.Load())
		assert.Equal(t, 0, g.Health()[0].ConsecutiveFailures, "a success has followed")
	})
}

// What is forgotten of a call that was joined isn't a later one.
func TestALaterOrphanIsKeptForItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
		for range 2 {
			_, err := resilience.Do(t.Context(), g, "x", hang(15*time.Second), from("a", "{}"))
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			time.Sleep(time.Minute)
			r := resilience.Run(t.Context(), g, "x", notCalled(t), from("a", "{}"))
			assert.Equal(t, lateValue, r.Value)
		}
	})
}

func TestACallThatJoinsHasItsOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, Effect: resilience.NonIdempotent, MaxInFlight: 1})
		r := resilience.Run(t.Context(), g, "x", hang(time.Minute), from("a", "{}"))
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		g.Breaker("x").Trip(0)

		r = resilience.Run(t.Context(), g, "x", notCalled(t), from("a", "{}"))
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout, "the breaker isn't asked")
		assert.Equal(t, 10*time.Second, r.Duration.Round(time.Second))
		assert.False(t, r.Err.Retryable)
		assert.Contains(t, r.Err.Suggestion, "It may have taken effect")

		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()
		r = resilience.Run(ctx, g, "x", notCalled(t), from("a", "{}"))
		assert.ErrorIs(t, r.Err, resilience.CodeCanceled)
		time.Sleep(time.Hour)
	})
}

// A success of a tool that was waited for, whose caller has left, wasn't received. The next caller may leave, too.
func TestAResultThatNobodyReceivedIsKept(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		g := guardWith(t, resilience.Tool{Cooperative: cooperative})
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()
		first := resilience.Run(ctx, g, "x", hang(5*time.Second), from("a", "{}"), resilience.WaitForTool())
		assert.Equal(t, lateValue, first.Value)
		for range 2 {
			r := resilience.Run(ctx, g, "x", notCalled(t), from("a", "{}"), resilience.WaitForTool())
			assert.Equal(t, lateValue, r.Value)
		}
	})
}

// A tool that returns when its caller leaves may have acted. The next caller learns that, the one after it decides.
func TestTheOutcomeOfACallThatWasCutOffIsUnknown(t *testing.T) {
	cutOff := func(ctx context.Context) (int, error) { return 0, untilCanceled(ctx) }
	inBothModes(t, func(t *testing.T, cooperative bool) {
		for name, option := range map[string]resilience.Option{"waits": resilience.WaitForTool(), "leaves": nil} {
			for effect, words := range map[resilience.Effect]string{
				resilience.NonIdempotent: "It may have taken effect: check before you call it again.",
				resilience.EffectUnknown: "If it changes anything, check first whether it took effect.",
			} {
				g := guardWith(t, resilience.Tool{Cooperative: cooperative, Effect: effect})
				ctx, cancel := leavingAfter(2 * time.Second)(t.Context())
				defer cancel()
				_ = resilience.Run(ctx, g, "x", cutOff, from("a", "{}"), option)
				time.Sleep(time.Second)

				r := resilience.Run(t.Context(), g, "x", notCalled(t), from("a", "{}"), option)
				assert.ErrorIs(t, r.Err, resilience.CodeCanceled, name)
				assert.Contains(t, r.Message(), "The same call was made 3 seconds ago, and its outcome is unknown. ")
				assert.Contains(t, r.Message(), words)
				_, err := resilience.Do(t.Context(), g, "x", succeed, from("a", "{}"), option)
				assert.NoError(t, err, name)
			}
		}
	})
}

func TestOnlySmallResultsAreKept(t *testing.T) {
	for size, kept := range map[int]bool{65_000: true, 66_000: false} {
		synctest.Test(t, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{})
			ctx, cancel := context.WithCancel(t.Context())
			write := func(context.Context) (string, error) { cancel(); return strings.Repeat("x", size), nil }
			_ = resilience.Run(ctx, g, "x", write, from("a", "{}"), resilience.WaitForTool())
			time.Sleep(time.Second)
			r := resilience.Run(t.Context(), g, "x", write, from("a", "{}"))
			assert.Equal(t, kept, r.Joined > 0)
			assert.Equal(t, kept, r.Err == nil, "the outcome is unknown to the agent, but the call doesn't act again")
		})
	}
}
