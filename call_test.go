package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	errRefusedInsert = fmt.Errorf("insert: %w", syscall.ECONNREFUSED) // has certainly had no effect
	errResetInsert   = fmt.Errorf("insert: %w", syscall.ECONNRESET)   // may have had one
)

const (
	failed    = resilience.CodeToolFailed
	exhausted = resilience.CodeRetryExhausted
	lost      = resilience.CodeConnectionLost
	timedOut  = resilience.CodeTimeout
	invalid   = resilience.CodeValidation
)

// A runTest says what must come out of a call.
type runTest struct {
	tool       resilience.Tool // with the effect of all cases, unless set
	fn         toolFunc
	code       resilience.Code // of the error; empty for a success
	attempts   int
	failures   int // that the breaker counts
	retryable  bool
	retryAfter time.Duration
}

func runCalls(t *testing.T, effect resilience.Effect, tests map[string]runTest) {
	t.Helper()
	for name, tc := range tests {
		runInBubble(t, name, func(t *testing.T) {
			if tc.tool.Effect == resilience.EffectUnknown {
				tc.tool.Effect = effect
			}
			g := guardWith(t, tc.tool)

			r := resilience.Run(t.Context(), g, "x", tc.fn)

			if tc.code == "" {
				require.Nil(t, r.Err)
				assert.Equal(t, tc.attempts, r.Value)
			} else {
				require.NotNil(t, r.Err)
				assert.Equal(t, tc.code, r.Err.Code)
				assert.Equal(t, tc.retryable, r.Err.Retryable)
				assert.Equal(t, tc.retryAfter, r.Err.RetryAfter)
				assert.Equal(t, "x", r.Err.Tool)
				assert.Nil(t, r.Err.Details)
			}
			assert.Equal(t, tc.attempts, r.Attempts)

			h := g.Health()
			require.Len(t, h, 1)
			assert.Equal(t, tc.failures, h[0].ConsecutiveFailures)
			assert.Zero(t, h[0].InFlight)
			assert.Equal(t, tc.failures > 0, h[0].LastError != nil)

			time.Sleep(time.Hour)
			assert.Zero(t, g.Health()[0].Abandoned)
		})
	}
}

func TestReadOnlyToolIsRetriedUnlessThatIsPointless(t *testing.T) {
	runCalls(t, resilience.ReadOnly, map[string]runTest{
		"success at last": {fn: failing(3, errBoom), attempts: 4},
		"no success":      {fn: failing(9, errBoom), code: exhausted, attempts: 4, failures: 1, retryable: true},
		"no success of an idempotent tool": {
			tool: resilience.Tool{Effect: resilience.Idempotent}, fn: failing(9, errBoom),
			code: exhausted, attempts: 4, failures: 1, retryable: true,
		},
		"permanent failure": {
			fn:   failing(9, resilience.MarkPermanent(errBoom)),
			code: failed, attempts: 1, failures: 1,
		},
		"permanent failure at last": {
			fn:   failingThen(1, errBoom, resilience.MarkPermanent(io.EOF)),
			code: failed, attempts: 2, failures: 1,
		},
		"invalid arguments": {fn: failing(9, resilience.MarkInvalid(errBoom)), code: invalid, attempts: 1},
		"panic":             {fn: panicking("p"), code: failed, attempts: 1, failures: 1},
		"goexit":            {fn: exit, code: failed, attempts: 1, failures: 1},
		"timeout":           {fn: hang(time.Hour), code: timedOut, attempts: 1, failures: 1, retryable: true},
		"the tool's own number of retries": {
			tool: resilience.Tool{Retry: &resilience.Retry{MaxRetries: 1}}, fn: failing(9, errBoom),
			code: exhausted, attempts: 2, failures: 1, retryable: true,
		},
		"no retries": {
			tool: resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}}, fn: failing(9, errBoom),
			code: failed, attempts: 1, failures: 1, retryable: true,
		},
		"too long a delay": {
			fn:   failing(9, waitError{90 * time.Second}),
			code: failed, attempts: 1, failures: 1, retryable: true, retryAfter: 90 * time.Second,
		},
		"the tool's own retryable Error": { // 30s twice leave no room for a third attempt
			fn:   failing(9, &resilience.Error{Message: "Busy", Retryable: true, RetryAfter: 30 * time.Second}),
			code: failed, attempts: 2, failures: 1, retryable: true, retryAfter: 30 * time.Second,
		},
		"the tool's own Error": {
			fn:   failing(9, &resilience.Error{Code: "BUSY", Message: "Busy", RetryAfter: time.Second}),
			code: "BUSY", attempts: 1, failures: 1, retryAfter: time.Second,
		},
		"the tool's own Error for a mistake of the caller": {
			fn:   failing(9, &resilience.Error{Code: resilience.CodeValidation, Message: "No such file"}),
			code: invalid, attempts: 1,
		},
	})
}

func TestToolOfUnknownEffectIsRetriedOnlyIfItHadNoEffect(t *testing.T) {
	runCalls(t, resilience.EffectUnknown, map[string]runTest{
		"success": {fn: succeed, attempts: 1},
		"failure": {fn: failing(9, errBoom), code: failed, attempts: 1, failures: 1, retryable: true},
		"marked as transient": {
			fn:   failing(9, resilience.MarkTransient(errBoom)),
			code: exhausted, attempts: 4, failures: 1, retryable: true,
		},
		"connection refused": {
			fn:   failing(9, errRefusedInsert),
			code: exhausted, attempts: 4, failures: 1, retryable: true,
		},
		"connection refused, then reset": {
			fn:   failingThen(1, errRefusedInsert, errResetInsert),
			code: lost, attempts: 2, failures: 1, retryable: true,
		},
		"connection reset": {fn: failing(9, errResetInsert), code: lost, attempts: 1, failures: 1, retryable: true},
		"timeout inside": {
			fn:   failing(9, context.DeadlineExceeded),
			code: timedOut, attempts: 1, failures: 1, retryable: true,
		},
		"timeout": {fn: hang(time.Hour), code: timedOut, attempts: 1, failures: 1, retryable: true},
	})
}

func TestNonIdempotentToolIsRetriedOnlyIfItHadNoEffect(t *testing.T) {
	runCalls(t, resilience.NonIdempotent, map[string]runTest{
		"failure":                    {fn: failing(9, errBoom), code: failed, attempts: 1, failures: 1},
		"connection reset":           {fn: failing(9, errResetInsert), code: lost, attempts: 1, failures: 1},
		"the error asks for a delay": {fn: failing(9, waitError{time.Second}), code: failed, attempts: 1, failures: 1, retryAfter: time.Second},
		"connection refused": {
			fn:   failing(9, errRefusedInsert),
			code: exhausted, attempts: 4, failures: 1, retryable: true,
		},
		"marked as transient": {fn: failing(2, resilience.MarkTransient(errBoom)), attempts: 3},
		"only one of two refused": {
			fn:   failing(9, errors.Join(errRefusedInsert, errBoom)),
			code: lost, attempts: 1, failures: 1,
		},
		"timeout inside": {
			fn:   failing(9, fmt.Errorf("x: %w", context.DeadlineExceeded)),
			code: timedOut, attempts: 1, failures: 1,
		},
		"timeout": {fn: hang(time.Hour), code: timedOut, attempts: 1, failures: 1},
	})
}

// failingThen fails with err that many times, and with another error from then on.
func failingThen(times int, err, then error) toolFunc {
	return func(ctx context.Context) (int, error) {
		if n := resilience.Attempt(ctx); n <= times {
			return n, err
		}
		return 0, then
	}
}

// What a Cooperative tool has when its attempt ends is its caller's.
func TestValueOfAnAttemptThatHasTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{
			Cooperative: true, AttemptTimeout: time.Second, Retry: &resilience.Retry{MaxRetries: -1},
		})
		r := resilience.Run(t.Context(), g, "x", untilDone)
		assert.Equal(t, resilience.CodeTimeout, r.Err.Code)
		assert.Equal(t, partialValue, r.Value)
	})
}

func TestAttemptTimeoutLeavesTimeForRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = 10 * time.Second
		g := newGuard(t, cfg)

		found := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (string, error) {
			if resilience.Attempt(ctx) < 3 {
				time.Sleep(time.Hour)
			}
			return "v", nil
		})
		assert.Nil(t, found.Err)
		assert.Equal(t, "v", found.Value)
		assert.Equal(t, 3, found.Attempts)
		assert.Equal(t, 20300*time.Millisecond, found.Duration)
		assert.Equal(t, 2, g.Health()[0].Abandoned)

		r := resilience.Run(t.Context(), g, "x", untilDone)
		assert.ErrorIs(t, r.Err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 4, r.Attempts)
		assert.Equal(t, 40700*time.Millisecond, r.Duration)
		time.Sleep(time.Hour)
	})
}

func TestCallThatWaitsForItsRetryEndsIfItsBreakerOpens(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"before the delay": 0,
		"during the delay": 100 * time.Millisecond,
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
			r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
				open := func() {
					for range 5 {
						report(g.Breaker("x"), io.EOF)
					}
				}
				if after == 0 {
					open()
				} else {
					time.AfterFunc(after/2, open)
				}
				return 0, errBoom
			})

			assert.ErrorIs(t, r.Err, resilience.CodeCircuitOpen)
			assert.ErrorIs(t, r.Err, errBoom, "the last cause is kept")
			assert.Equal(t, 1, r.Attempts)
			assert.Equal(t, "x", r.Err.Tool)
			assert.Equal(t, after, r.Duration)
		})
	}
}

// Time can't be asserted, but allocations can. A tool that asks for ctx.Done() pays some of them.
func TestCallMakesFewAllocations(t *testing.T) {
	const calls = 1000
	looks := func(ctx context.Context) (string, error) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		default:
			return "found", nil
		}
	}
	g := newGuard(t, resilience.Config{
		Tools: map[string]resilience.Tool{"enforced": {}, "cooperative": {Cooperative: true}, "open": {}},
	})
	trip(t, g.Breaker("open"))
	session, cancel := context.WithCancel(t.Context())
	defer cancel()

	returns := func(context.Context) (string, error) { return "found", nil }
	for _, tc := range []struct {
		tool              string
		fn                func(context.Context) (string, error)
		allocations, size uint64
	}{
		{"enforced", returns, 10, 800}, {"cooperative", returns, 7, 500}, {"open", returns, 2, 400},
		{"enforced", looks, 10, 840}, {"cooperative", looks, 8, 760},
	} {
		t.Run(tc.tool, func(t *testing.T) {
			call := func() { _, _ = resilience.Do(session, g, tc.tool, tc.fn) }
			call()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range calls {
				call()
			}
			runtime.ReadMemStats(&after)
			assert.LessOrEqual(t, (after.Mallocs-before.Mallocs)/calls, tc.allocations)
			assert.LessOrEqual(t, (after.TotalAlloc-before.TotalAlloc)/calls, tc.size)
		})
	}
}
