package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCallEndsByTheFirstOfItsTimeouts(t *testing.T) {
	const s = time.Second
	timeout := func(d time.Duration) []resilience.Option { return []resilience.Option{resilience.Timeout(d)} }
	heavy, upTo90s := resilience.Tool{Tier: resilience.Heavy}, resilience.Tool{MaxTimeout: 90 * s}
	for name, tc := range map[string]struct {
		tool     resilience.Tool
		opts     []resilience.Option
		deadline time.Duration // the caller's
		took     time.Duration
		failures int // that the breaker counts
	}{
		"tier quick":               {took: 60 * s, failures: 1},
		"tier heavy":               {tool: heavy, took: 120 * s, failures: 1},
		"the tool's own":           {tool: resilience.Tool{Timeout: s}, took: s, failures: 1},
		"the caller's deadline":    {deadline: s, took: s},
		"the same deadline":        {deadline: 60 * s, took: 60 * s, failures: 1},
		"a later deadline":         {deadline: time.Hour, took: 60 * s, failures: 1},
		"a shorter option":         {opts: timeout(s), took: s},
		"a longer option":          {opts: timeout(time.Hour), took: 60 * s, failures: 1},
		"a longer option, allowed": {tool: upTo90s, opts: timeout(80 * s), took: 80 * s, failures: 1},
		"too long an option":       {tool: upTo90s, opts: timeout(time.Hour), took: 90 * s, failures: 1},
		"the last of several options": {
			opts: []resilience.Option{resilience.Timeout(time.Hour), nil, resilience.Timeout(s)},
			took: s,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, cooperative bool) {
				tool := tc.tool
				tool.Cooperative = cooperative
				g := guardWith(t, tool)
				ctx := contextWithin(t, tc.deadline)

				start := time.Now()
				value, err := resilience.Do(ctx, g, "x", untilDone, tc.opts...)

				assert.Equal(t, tc.took, time.Since(start))
				assert.ErrorIs(t, err, resilience.CodeTimeout)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Contains(t, err.Error(), fmt.Sprintf("exceeded timeout of %vs", tc.took.Seconds()))
				assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures)
				if cooperative {
					assert.Equal(t, partialValue, value, "what it had by then")
				}
			})
		})
	}
}

func TestDebugAddsRedactedDetails(t *testing.T) {
	for name, tc := range map[string]struct {
		ofConfig bool
		opts     []resilience.Option
	}{
		"of the Config": {ofConfig: true},
		"of the call":   {opts: []resilience.Option{resilience.Debug()}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
			cfg.Debug = tc.ofConfig
			args := resilience.Args(map[string]any{"query": strings.Repeat("q", 300), "api_key": "sk-1"})

			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(9, errBoom), append(tc.opts, args)...)

			assert.Equal(t, map[string]any{
				"tool": "x", "timeout": "60s", "attempt": 1, "elapsed": "0s", "cause": errBoom.Error(),
				"arguments": map[string]any{
					"query":   strings.Repeat("q", 200) + "...[truncated]",
					"api_key": "[REDACTED]",
				},
			}, r.Err.Details)
		})
	}
}

func TestDebugKeepsTheDetailsOfTheToolsOwnError(t *testing.T) {
	g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
	own := &resilience.Error{Message: "Full", Details: map[string]any{"disk": "sda", "token": "t"}, Err: errBoom}

	_, err := resilience.Do(t.Context(), g, "x", failing(9, own))
	assert.NotContains(t, jsonOf(t, err), "details")

	r := resilience.Run(t.Context(), g, "x", failing(9, own), resilience.Debug())
	assert.Equal(t, "sda", r.Err.Details["disk"])
	assert.Equal(t, "[REDACTED]", r.Err.Details["token"])
	assert.Equal(t, map[string]any{"disk": "sda", "token": "t"}, own.Details)
	assert.ErrorIs(t, r.Err, own)
}

// An agent reads the cause, but for secrets, also for one that the end of what it reads cuts in two.
func TestDebugShowsACauseWithoutItsSecrets(t *testing.T) {
	long := strings.Repeat("x", 180)
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a secret":        {errors.New("login with password=hunter2x9 at db"), "login with password=[REDACTED] at db"},
		"in the author's": {&resilience.Error{Message: "m", Err: errors.New("token=hunter2x9")}, "token=[REDACTED]"},
		"cut in two": {
			errors.New(long + " https://app:hunter2x9@db/"), long + " https://[REDACTED]@...[truncated]",
		},
		"beyond": {errors.New(long + strings.Repeat("é", 3000)), long + strings.Repeat("é", 20) + "...[truncated]"},
	} {
		for _, g := range []*resilience.Guard{
			guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}),
			newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Debug: true}),
		} {
			r := resilience.Run(t.Context(), g, "x", failing(9, tc.err), resilience.Debug())
			assert.Equal(t, tc.want, r.Err.Details["cause"], name)
		}
	}
	_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", func(context.Context) (int, error) {
		panic("can't reach app:hunter2x9@tcp(db:3306)/x")
	}, resilience.Debug())
	assert.NotContains(t, jsonOf(t, err), "hunter2x9")
}

// The details of a call that was never begun say nothing of a tool.
func TestDebugOfACallThatIsInvalid(t *testing.T) {
	r := resilience.Run[int](t.Context(), guardWith(t, resilience.Tool{}), "x", nil, resilience.Debug())
	assert.Equal(t, resilience.CodeToolNotFound, r.Err.Code)
	for _, key := range []string{"timeout", "cause", "arguments"} {
		assert.NotContains(t, r.Err.Details, key)
	}
}

// Details and arguments are as deep as Redact shows them.
func TestDebugShowsAsManyLevelsAsRedact(t *testing.T) {
	deep := map[string]any{"end": 1}
	for range 50 {
		deep = map[string]any{"d": deep}
	}
	own := &resilience.Error{Message: "m", Details: deep}
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, own), resilience.Debug(),
		resilience.Args(deep))
	assert.Equal(t, resilience.Redact(deep)["d"], r.Err.Details["d"])
	want := resilience.Redact(map[string]any{"arguments": deep})
	assert.Equal(t, want["arguments"], r.Err.Details["arguments"])
}

func TestDebugSurvivesErrorsThatPanic(t *testing.T) {
	g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})

	r := resilience.Run(t.Context(), g, "x", failing(9, &unprintableError{}), resilience.Debug())
	assert.Equal(t, "[unprintable]", r.Err.Details["cause"])

	r = resilience.Run(t.Context(), g, "x", failing(9, textError{runtime.Goexit}), resilience.Debug())
	assert.Equal(t, "[unprintable]", r.Err.Details["cause"])
	synctest.Test(t, func(t *testing.T) {
		slow := textError{func() { time.Sleep(time.Hour) }}
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, slow), resilience.Debug())
		assert.Equal(t, "[unprintable]", r.Err.Details["cause"])
		time.Sleep(2 * time.Hour)
	})

	var none *typedNil
	r = resilience.Run(t.Context(), g, "x", failing(9, none), resilience.Debug())
	assert.Equal(t, resilience.CodeToolFailed, r.Err.Code, "a nil pointer as an error fails its own call only")
}

// An abandoned tool may go on changing its arguments.
func TestDebugHasTheArgumentsFromBeforeTheCall(t *testing.T) {
	g := guardWith(t, resilience.Tool{Timeout: time.Millisecond})
	stop := make(chan struct{})
	handler := resilience.Wrap(g, "x", func(_ context.Context, in map[string]any) (int, error) {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return 0, nil
			default:
				in["n"] = i
			}
		}
	}, resilience.Debug())

	_, err := handler(t.Context(), map[string]any{"n": "before"})

	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, map[string]any{"n": "before"}, e.Details["arguments"])
	close(stop)
	waitForAbandoned(t, g)
}

func TestDebugHasNoArgumentsIfTheCallHasNone(t *testing.T) {
	g := newGuard(t, resilience.Config{Debug: true})

	r := resilience.All(t.Context(), g, resilience.Call[int]{Tool: "y", Func: failing(9, errBoom)})

	require.NotEmpty(t, r[0].Err.Details)
	assert.NotContains(t, r[0].Err.Details, "arguments")
}
