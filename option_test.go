package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCallEndsByTheFirstOfItsTimeouts(t *testing.T) {
	const s = time.Second
	timeout := func(d time.Duration) []resilience.Option { return []resilience.Option{resilience.Timeout(d)} }
	clients := func(seconds int) []resilience.Option {
		meta := map[string]any{resilience.MetaTimeout: seconds}
		request := resilience.Request{AllowTimeout: true, RequestInfo: resilience.RequestInfo{Meta: meta}}
		return []resilience.Option{resilience.ForRequest(request)}
	}
	last := []resilience.Option{resilience.Timeout(time.Hour), nil, resilience.Timeout(s)}
	heavy, upTo90s := resilience.Tool{Tier: resilience.Heavy}, resilience.Tool{MaxTimeout: 90 * s}
	for name, tc := range map[string]struct {
		tool     resilience.Tool
		opts     []resilience.Option
		deadline time.Duration // the caller's
		took     time.Duration
		failures int // that the breaker counts
	}{
		"tier quick":                  {took: 60 * s, failures: 1},
		"tier heavy":                  {tool: heavy, took: 120 * s, failures: 1},
		"the tool's own":              {tool: resilience.Tool{Timeout: s}, took: s, failures: 1},
		"the caller's deadline":       {deadline: s, took: s},
		"a later deadline":            {deadline: time.Hour, took: 60 * s, failures: 1},
		"a shorter option":            {opts: timeout(s), took: s},
		"a longer option":             {opts: timeout(time.Hour), took: time.Hour, failures: 1},
		"longer than MaxTimeout":      {tool: upTo90s, opts: timeout(time.Hour), took: time.Hour, failures: 1},
		"a client's, allowed":         {tool: upTo90s, opts: clients(80), took: 80 * s, failures: 1},
		"a client's, too long":        {tool: upTo90s, opts: clients(3600), took: 90 * s, failures: 1},
		"the last of several options": {opts: last, took: s},
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
					assert.Equal(t, partialValue, value, "the value that it had by then")
				}
			})
		})
	}
}

func TestDebugAddsRedactedDetails(t *testing.T) {
	for ofConfig, ofCall := range map[bool][]resilience.Option{true: nil, false: opts(resilience.Debug())} {
		runInBubble(t, fmt.Sprint("of the Config: ", ofConfig), func(t *testing.T) {
			cfg := configWith(writes)
			cfg.Debug = ofConfig
			g := newGuard(t, cfg)
			args := resilience.Args(map[string]any{"query": strings.Repeat("q", 300), "api_key": "sk-1"})

			r := resilience.Run(t.Context(), g, "x", failing(9, errBoom), append(ofCall, args)...)
			assert.Equal(t, map[string]any{
				"tool": "x", "timeout": "60s", "attempt": 1, "elapsed": "0s", "cause": errBoom.Error(),
				"arguments": map[string]any{
					"query":   strings.Repeat("q", 200) + "...[truncated]",
					"api_key": "[REDACTED]",
				},
			}, r.Err.Details)

			r = resilience.Run(t.Context(), g, "x", failing(9, errBoom), ofCall...)
			assert.NotContains(t, r.Err.Details, "arguments")
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

func TestDebugShowsACauseWithoutItsSecrets(t *testing.T) {
	long := strings.Repeat("x", 180)
	fails := func(text string) toolFunc { return failing(9, errors.New(text)) }
	own := &resilience.Error{Message: "m", Err: errors.New("token=hunter2x9")}
	for name, tc := range map[string]struct {
		fn   toolFunc
		want string
	}{
		"a secret":        {fails("login with password=hunter2x9 at db"), "login with password=[REDACTED] at db"},
		"in the author's": {failing(9, own), "token=[REDACTED]"},
		"of a panic":      {panicking("token=hunter2x9"), "panic: token=[REDACTED]"},
		"cut in two":      {fails(long + " https://app:hunter2x9@db/"), long + " https://[REDACTED]@...[truncated]"},
		"too long":        {fails(long + strings.Repeat("é", 99)), long + strings.Repeat("é", 20) + "...[truncated]"},
	} {
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		r := resilience.Run(t.Context(), g, "x", tc.fn, resilience.Debug())
		assert.Equal(t, tc.want, r.Err.Details["cause"], name)
	}
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
	assert.Equal(t, map[string]any{"n": "before"}, err.(*resilience.Error).Details["arguments"])
	close(stop)
	waitForAbandoned(t, g)
}

// finishes returns a tool that goes on for a while when its context has ended.
func finishes(after time.Duration, err error) toolFunc {
	return func(ctx context.Context) (int, error) {
		<-ctx.Done()
		time.Sleep(after)
		return 1, err
	}
}

func TestWaitForToolAnswersWithWhatTheToolMakesOfTheEnd(t *testing.T) {
	const timeout, canceled = 10 * time.Second, resilience.CodeCanceled
	own := &resilience.Error{Message: "rolled back", Suggestion: "s"}
	for name, tc := range map[string]struct {
		fn    toolFunc
		took  time.Duration // after the caller has left, which it does after a second
		value int
		code  resilience.Code
		cause error
	}{
		"a result":             {fn: finishes(2*time.Second, nil), took: 2 * time.Second, value: 1},
		"an error":             {finishes(2*time.Second, errBoom), 2 * time.Second, 1, canceled, errBoom},
		"an error of its own":  {finishes(2*time.Second, own), 2 * time.Second, 1, resilience.CodeToolFailed, own},
		"the end":              {fn: untilDone, value: lateValue + 1, code: canceled},
		"nothing in its time":  {fn: finishes(time.Hour, nil), took: 9 * time.Second, code: canceled},
		"nothing, in a pause":  {fn: pausedFor(time.Hour), took: timeout, code: canceled},
		"a result, in a pause": {fn: pausedFor(5 * time.Second), took: 4 * time.Second, value: 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: timeout, Effect: resilience.ReadOnly})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)

			r := resilience.Run(ctx, g, "x", tc.fn, resilience.WaitForTool())
			assert.Equal(t, time.Second+tc.took, r.Duration)
			assert.Equal(t, tc.value, r.Value)
			assert.Equal(t, 1, r.Attempts)
			if tc.code == "" {
				assert.Nil(t, r.Err)
			} else {
				require.NotNil(t, r.Err)
				assert.Equal(t, tc.code, r.Err.Code)
				assert.True(t, tc.cause == nil || errors.Is(r.Err, tc.cause))
			}
			h := g.Health()[0]
			assert.Zero(t, h.ConsecutiveFailures)
			assert.Zero(t, h.InFlight)
			time.Sleep(2 * time.Hour)
			assert.Zero(t, g.Health()[0].Abandoned)
		})
	}
}

func pausedFor(d time.Duration) toolFunc {
	return func(ctx context.Context) (int, error) {
		resilience.Pause(ctx)
		time.Sleep(d)
		return 1, nil
	}
}

func TestWaitForToolCallsAToolWhoseCallerHasLeft(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		g := guardWith(t, resilience.Tool{Cooperative: cooperative})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)

		value, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
			assert.ErrorIs(t, context.Cause(ctx), errBoom)
			time.Sleep(time.Second)
			return 1, nil
		}, resilience.WaitForTool())
		assert.NoError(t, err)
		assert.Equal(t, 1, value)

		_, err = resilience.Do(ctx, g, "x", failing(9, errBoom), resilience.WaitForTool())
		assert.ErrorIs(t, err, resilience.CodeCanceled)
	})
}

func TestWaitForToolEndsWithTheTimeoutOfTheCall(t *testing.T) {
	for caller, leave := range map[string]time.Duration{"stays": time.Hour, "leaves": 9 * time.Second} {
		runInBubble(t, caller, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, Effect: resilience.ReadOnly})
			ctx, cancel := context.WithTimeout(t.Context(), leave)
			defer cancel()

			r := resilience.Run(ctx, g, "x", hang(time.Hour), resilience.WaitForTool())
			assert.Equal(t, 10*time.Second, r.Duration)
			assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
			time.Sleep(2 * time.Hour)
		})
	}
}
