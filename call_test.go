package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
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
		"no success": {
			fn:   failing(9, errBoom),
			code: resilience.CodeRetryExhausted, attempts: 4, failures: 1, retryable: true,
		},
		"no success of an idempotent tool": {
			tool: resilience.Tool{Effect: resilience.Idempotent}, fn: failing(9, errBoom),
			code: resilience.CodeRetryExhausted, attempts: 4, failures: 1, retryable: true,
		},
		"permanent failure": {
			fn:   failing(9, resilience.MarkPermanent(errBoom)),
			code: resilience.CodeToolFailed, attempts: 1, failures: 1,
		},
		"permanent failure at last": {
			fn:   failingThen(1, errBoom, resilience.MarkPermanent(io.EOF)),
			code: resilience.CodeToolFailed, attempts: 2, failures: 1,
		},
		"permanent failure of the last attempt": {
			fn:   failingThen(3, errBoom, resilience.MarkPermanent(io.EOF)),
			code: resilience.CodeToolFailed, attempts: 4, failures: 1,
		},
		"the tool's own Error at its timeout": {
			tool: resilience.Tool{Cooperative: true}, fn: failingOnceDone(&resilience.Error{Code: "BUSY"}),
			code: "BUSY", attempts: 1, failures: 1,
		},
		"invalid arguments": {
			fn:   failing(9, resilience.MarkInvalid(errBoom)),
			code: resilience.CodeValidation, attempts: 1,
		},
		"panic":  {fn: panicking("p"), code: resilience.CodeToolFailed, attempts: 1, failures: 1},
		"goexit": {fn: exit, code: resilience.CodeToolFailed, attempts: 1, failures: 1},
		"timeout": {
			fn:   hang(time.Hour),
			code: resilience.CodeTimeout, attempts: 1, failures: 1, retryable: true,
		},
		"the tool's own number of retries": {
			tool: resilience.Tool{Retry: &resilience.Retry{MaxRetries: 1}}, fn: failing(9, errBoom),
			code: resilience.CodeRetryExhausted, attempts: 2, failures: 1, retryable: true,
		},
		"no retries": {
			tool: resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}}, fn: failing(9, errBoom),
			code: resilience.CodeToolFailed, attempts: 1, failures: 1, retryable: true,
		},
		"too long a delay": {
			fn:   failing(9, waitError{90 * time.Second}),
			code: resilience.CodeToolFailed, attempts: 1, failures: 1, retryable: true, retryAfter: 90 * time.Second,
		},
		"the tool cancels something itself": {
			fn:   failing(9, context.Canceled),
			code: resilience.CodeRetryExhausted, attempts: 4, failures: 1, retryable: true,
		},
		"the tool's own retryable Error": { // 30s twice leave no room for a third attempt
			fn:   failing(9, &resilience.Error{Message: "Busy", Retryable: true, RetryAfter: 30 * time.Second}),
			code: resilience.CodeToolFailed, attempts: 2, failures: 1, retryable: true, retryAfter: 30 * time.Second,
		},
		"the tool's own Error": {
			fn:   failing(9, &resilience.Error{Code: "BUSY", Message: "Busy", RetryAfter: time.Second}),
			code: "BUSY", attempts: 1, failures: 1, retryAfter: time.Second,
		},
		"the tool's own Error for a mistake of the caller": {
			fn:   failing(9, &resilience.Error{Code: resilience.CodeValidation, Message: "No such file"}),
			code: resilience.CodeValidation, attempts: 1,
		},
	})
}

func TestToolOfUnknownEffectIsRetriedOnlyIfItHadNoEffect(t *testing.T) {
	runCalls(t, resilience.EffectUnknown, map[string]runTest{
		"success": {fn: succeed, attempts: 1},
		"failure": {
			fn:   failing(9, errBoom),
			code: resilience.CodeToolFailed, attempts: 1, failures: 1, retryable: true,
		},
		"the tool cancels something itself": {
			fn:   failing(9, context.Canceled),
			code: resilience.CodeToolFailed, attempts: 1, failures: 1, retryable: true,
		},
		"the tool cancels something itself, and loses its connection": {
			fn:   failing(9, errors.Join(context.Canceled, errResetInsert)),
			code: resilience.CodeConnectionLost, attempts: 1, failures: 1, retryable: true,
		},
		"marked as transient": {
			fn:   failing(9, resilience.MarkTransient(errBoom)),
			code: resilience.CodeRetryExhausted, attempts: 4, failures: 1, retryable: true,
		},
		"connection refused": {
			fn:   failing(9, errRefusedInsert),
			code: resilience.CodeRetryExhausted, attempts: 4, failures: 1, retryable: true,
		},
		"connection refused, then reset": {
			fn:   failingThen(1, errRefusedInsert, errResetInsert),
			code: resilience.CodeConnectionLost, attempts: 2, failures: 1, retryable: true,
		},
		"connection reset": {
			fn:   failing(9, errResetInsert),
			code: resilience.CodeConnectionLost, attempts: 1, failures: 1, retryable: true,
		},
		"timeout inside": {
			fn:   failing(9, context.DeadlineExceeded),
			code: resilience.CodeTimeout, attempts: 1, failures: 1, retryable: true,
		},
		"timeout": {
			fn:   hang(time.Hour),
			code: resilience.CodeTimeout, attempts: 1, failures: 1, retryable: true,
		},
	})
}

func TestNonIdempotentToolIsRetriedOnlyIfItHadNoEffect(t *testing.T) {
	runCalls(t, resilience.NonIdempotent, map[string]runTest{
		"failure": {fn: failing(9, errBoom), code: resilience.CodeToolFailed, attempts: 1, failures: 1},
		"connection reset": {
			fn:   failing(9, errResetInsert),
			code: resilience.CodeConnectionLost, attempts: 1, failures: 1,
		},
		"the error asks for a delay": {
			fn:   failing(9, waitError{time.Second}),
			code: resilience.CodeToolFailed, attempts: 1, failures: 1,
		},
		"connection refused": {
			fn:   failing(9, errRefusedInsert),
			code: resilience.CodeRetryExhausted, attempts: 4, failures: 1, retryable: true,
		},
		"marked as transient": {fn: failing(2, resilience.MarkTransient(errBoom)), attempts: 3},
		"only one of two refused": {
			fn:   failing(9, errors.Join(errRefusedInsert, errBoom)),
			code: resilience.CodeConnectionLost, attempts: 1, failures: 1,
		},
		"timeout inside": {
			fn:   failing(9, fmt.Errorf("x: %w", context.DeadlineExceeded)),
			code: resilience.CodeTimeout, attempts: 1, failures: 1,
		},
		"timeout": {fn: hang(time.Hour), code: resilience.CodeTimeout, attempts: 1, failures: 1},
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

// A question to a person was answered, or is in the way.
func TestToolThatHasPausedIsNotEvenWaitedWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{MaxTimeout: time.Hour}), "x",
			func(ctx context.Context) (int, error) {
				resilience.Pause(ctx)()
				return 0, errRefusedInsert
			})
		assert.Equal(t, 1, r.Attempts)
		assert.Zero(t, r.Duration)
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

func TestAttemptThatIsCutOffMayHaveHadAnEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{AttemptTimeout: time.Second})

		r := resilience.Run(t.Context(), g, "y", untilDone)

		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 1, r.Attempts)
		assert.Equal(t, "Tool 'y' exceeded timeout of 1s", r.Err.Message)
	})
}

func TestTimeoutOfTheCallEndsItsLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = 50 * time.Second

		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", untilDone)

		assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
		assert.Equal(t, 2, r.Attempts)
		assert.Equal(t, "Tool 'x' exceeded timeout of 60s", r.Err.Message)
	})
}

// The number may be part of a key.
func TestAbandonedAttemptKeepsItsNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = time.Second

		_, err := resilience.Do(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
			n := resilience.Attempt(ctx)
			if n == 1 {
				time.Sleep(10 * time.Second)
				assert.Equal(t, 1, resilience.Attempt(ctx))
			}
			return n, nil
		})

		assert.NoError(t, err)
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

func TestCallThatWaitsForItsRetryGoesOnIfItsBreakerHasOpenedAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.Retry.Backoff = tenSecondsApart
		cfg.Breaker = resilience.BreakerConfig{Failures: 1, Cooldown: time.Second}
		g := newGuard(t, cfg)
		b := g.Breaker("x")
		time.AfterFunc(time.Second, func() { assert.True(t, report(b, errBoom)) })
		time.AfterFunc(3*time.Second, func() { assert.True(t, report(b, nil)) })

		_, err := resilience.Do(t.Context(), g, "x", failing(1, errBoom))

		assert.NoError(t, err)
	})
}

func TestClassifyOfTheConfigDecides(t *testing.T) {
	errLeft := errors.New("rpc error: code = Canceled")
	classify := func(err error) resilience.Class {
		if errors.Is(err, errLeft) {
			return resilience.ClassCanceled
		}
		return resilience.ClassTransient
	}
	cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
	cfg.Retry.Classify, cfg.Breaker.Classify = classify, classify
	g := newGuard(t, cfg)

	r := resilience.Run(t.Context(), g, "x", failing(9, errLeft))
	assert.ErrorIs(t, r.Err, resilience.CodeCanceled)
	assert.Equal(t, 1, r.Attempts)
	assert.Zero(t, g.Health()[0].ConsecutiveFailures)

	r = resilience.Run(t.Context(), g, "x", panicking(errLeft))
	assert.ErrorIs(t, r.Err, resilience.CodeToolFailed, "but a panic is a panic")
	assert.Equal(t, 1, r.Attempts)
	assert.Equal(t, 1, g.Health()[0].ConsecutiveFailures)
}

// Time can't be asserted, but allocations can. A tool that asks for ctx.Done() pays one of them.
func TestCallMakesFewAllocations(t *testing.T) {
	looks := func(ctx context.Context) (string, error) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		default:
			return "found", nil
		}
	}
	fails := func(context.Context) (string, error) { return "", errBoom }
	g := newGuard(t, resilience.Config{
		Tools: map[string]resilience.Tool{
			"enforced": {}, "cooperative": {Cooperative: true}, "open": {},
			"harmless":              {Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1}},
			"harmless, cooperative": {Effect: resilience.ReadOnly, Retry: &resilience.Retry{MaxRetries: -1}, Cooperative: true},
		},
		Breaker:  resilience.BreakerConfig{Failures: 1000},
		Breakers: map[string]resilience.BreakerConfig{"open": {Failures: 5}},
	})
	trip(t, g.Breaker("open"))
	session, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		tool string
		f    func(context.Context) (string, error)
		most float64
	}{
		"cooperative":              {context.Background(), "cooperative", looks, 5},
		"enforced":                 {context.Background(), "enforced", looks, 7},
		"enforced in a session":    {session, "enforced", looks, 7},
		"cooperative in a session": {session, "cooperative", looks, 8},
		"rejected":                 {context.Background(), "open", looks, 2},
		"failed":                   {context.Background(), "harmless", fails, 8},
		"failed, cooperative":      {context.Background(), "harmless, cooperative", fails, 6},
		"failed, effect unknown":   {context.Background(), "enforced", fails, 9}, // it says to check first
	} {
		t.Run(name, func(t *testing.T) {
			got := testing.AllocsPerRun(200, func() { _, _ = resilience.Do(tc.ctx, g, tc.tool, tc.f) })
			assert.LessOrEqual(t, got, tc.most)
		})
	}

	_, err := g.JoinFleet("test", new(testFleet))
	require.NoError(t, err)
	got := testing.AllocsPerRun(200, func() { _, _ = resilience.Do(t.Context(), g, "enforced", looks) })
	assert.LessOrEqual(t, got, 7.0, "in a fleet")
}

// A hostileContext has a method that panics once it has been called so often.
type hostileContext struct {
	context.Context
	calls atomic.Int64
	limit int64
}

func (c *hostileContext) Value(key any) any {
	if c.calls.Add(1) == c.limit {
		panic("boom")
	}
	return c.Context.Value(key)
}

func TestContextThatPanicsBeforeTheToolRunsIsNotCounted(t *testing.T) {
	for limit := int64(1); limit < 12; limit++ {
		g := newGuard(t, resilience.Config{
			Breaker: resilience.BreakerConfig{Failures: 1}, Tools: map[string]resilience.Tool{"x": {}, "outer": {}},
		})
		_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			called := false
			_, err := resilience.Do(&hostileContext{Context: ctx, limit: limit}, g, "x", func(context.Context) (int, error) {
				called = true
				return 0, nil
			})
			assert.Equal(t, err == nil, called)
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State(), "call %d panics", limit)
			return 0, nil
		})
		require.NoError(t, err)
	}
}

// A lostContext has no deadline to tell.
type lostContext struct{ context.Context }

func (lostContext) Deadline() (time.Time, bool) { panic("boom") }

func TestContextThatPanicsLeavesNoToolInHealth(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"Deadline": lostContext{t.Context()}, "Value": &hostileContext{Context: t.Context(), limit: 1},
	} {
		g := newGuard(t, resilience.Config{})
		_, err := resilience.Do(ctx, g, "made-up", notCalled(t), resilience.ForRequest(resilience.Request{}))
		require.Error(t, err, name)
		assert.Empty(t, g.Health(), name)
	}
}

func TestRequestThatWaitedForLongIsNotTheFaultOfAToolWithoutTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: math.MaxInt64})
		for range 5 {
			_, err := resilience.Do(t.Context(), g, "x", untilDone, resilience.ForRequest(resilience.Request{
				Received: time.Now().Add(-6 * time.Second), AllowTimeout: true,
				RequestInfo: resilience.RequestInfo{Meta: map[string]any{resilience.MetaTimeout: 10.0}},
			}))
			require.ErrorIs(t, err, resilience.CodeTimeout)
		}
		assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
	})
}
