package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
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
	marked, mistake := resilience.MarkPermanent(io.EOF), resilience.MarkInvalid(errBoom)
	busy := &resilience.Error{Message: "Busy", Retryable: true, RetryAfter: 30 * time.Second}
	own := &resilience.Error{Code: "BUSY", Message: "Busy", RetryAfter: time.Second}
	missing := &resilience.Error{Code: resilience.CodeValidation, Message: "No such file"}
	idempotent := resilience.Tool{Effect: resilience.Idempotent}
	oneRetry := resilience.Tool{Retry: &resilience.Retry{MaxRetries: 1}}
	fails := failing(9, errBoom)
	runCalls(t, resilience.ReadOnly, map[string]runTest{
		"success at last": {fn: failing(3, errBoom), attempts: 4},
		"no success":      {fn: fails, code: exhausted, attempts: 4, failures: 1, retryable: true},
		"no success of an idempotent tool": {
			tool: idempotent, fn: fails, code: exhausted, attempts: 4, failures: 1, retryable: true,
		},
		"permanent failure":         {fn: failing(9, marked), code: failed, attempts: 1, failures: 1},
		"permanent failure at last": {fn: failingThen(1, errBoom, marked), code: failed, attempts: 2, failures: 1},
		"invalid arguments":         {fn: failing(9, mistake), code: invalid, attempts: 1},
		"panic":                     {fn: panicking("p"), code: failed, attempts: 1, failures: 1},
		"goexit":                    {fn: exit, code: failed, attempts: 1, failures: 1},
		"timeout":                   {fn: hang(time.Hour), code: timedOut, attempts: 1, failures: 1, retryable: true},
		"the tool's own number of retries": {
			tool: oneRetry, fn: fails, code: exhausted, attempts: 2, failures: 1, retryable: true,
		},
		"no retries": {tool: once, fn: fails, code: failed, attempts: 1, failures: 1, retryable: true},
		"too long a delay": {
			fn:   failing(9, waitError{90 * time.Second}),
			code: failed, attempts: 1, failures: 1, retryable: true, retryAfter: 90 * time.Second,
		},
		"the tool's own retryable Error": { // 30s twice leave no room for a third attempt
			fn:   failing(9, busy),
			code: failed, attempts: 2, failures: 1, retryable: true, retryAfter: 30 * time.Second,
		},
		"the tool's own Error": {
			fn: failing(9, own), code: "BUSY", attempts: 1, failures: 1, retryAfter: time.Second,
		},
		"the tool's own Error for a mistake of the caller": {fn: failing(9, missing), code: invalid, attempts: 1},
	})
}

func TestToolOfUnknownEffectIsRetriedOnlyIfItHadNoEffect(t *testing.T) {
	refused, reset := errRefusedInsert, errResetInsert
	late, marked, then := context.DeadlineExceeded, resilience.MarkNoEffect(errBoom), failingThen(1, refused, reset)
	runCalls(t, resilience.EffectUnknown, map[string]runTest{
		"success":             {fn: succeed, attempts: 1},
		"failure":             {fn: failing(9, errBoom), code: failed, attempts: 1, failures: 1, retryable: true},
		"marked as transient": {fn: failing(9, marked), code: exhausted, attempts: 4, failures: 1, retryable: true},
		"connection refused":  {fn: failing(9, refused), code: exhausted, attempts: 4, failures: 1, retryable: true},
		"refused, then reset": {fn: then, code: lost, attempts: 2, failures: 1, retryable: true},
		"connection reset":    {fn: failing(9, reset), code: lost, attempts: 1, failures: 1, retryable: true},
		"timeout inside":      {fn: failing(9, late), code: timedOut, attempts: 1, failures: 1, retryable: true},
		"timeout":             {fn: hang(time.Hour), code: timedOut, attempts: 1, failures: 1, retryable: true},
	})
}

func TestNonIdempotentToolIsRetriedOnlyIfItHadNoEffect(t *testing.T) {
	refused, marked := errRefusedInsert, resilience.MarkNoEffect(errBoom)
	late, waits := fmt.Errorf("x: %w", context.DeadlineExceeded), waitError{time.Second}
	joined := errors.Join(refused, errBoom)
	runCalls(t, resilience.NonIdempotent, map[string]runTest{
		"failure":             {fn: failing(9, errBoom), code: failed, attempts: 1, failures: 1},
		"connection reset":    {fn: failing(9, errResetInsert), code: lost, attempts: 1, failures: 1},
		"it asks to wait":     {fn: failing(9, waits), code: failed, attempts: 1, failures: 1, retryAfter: waits.delay},
		"connection refused":  {fn: failing(9, refused), code: exhausted, attempts: 4, failures: 1, retryable: true},
		"marked as transient": {fn: failing(2, marked), attempts: 3},
		"one of two refused":  {fn: failing(9, joined), code: lost, attempts: 1, failures: 1},
		"timeout inside":      {fn: failing(9, late), code: timedOut, attempts: 1, failures: 1},
		"timeout":             {fn: hang(time.Hour), code: timedOut, attempts: 1, failures: 1},
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

			assert.ErrorIs(t, r.Err, errBoom)
			assert.Equal(t, 30*time.Second, r.Err.RetryAfter.Round(time.Second))
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
