package resilience_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// steady waits 100ms, 200ms, 400ms, 800ms, 1s, …
var steady = resilience.Retry{Backoff: resilience.Backoff{Jitter: resilience.NoJitter}}

// failing fails so often with err before it succeeds, and says which attempt it was.
func failing(times int, err error) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		n := resilience.Attempt(ctx)
		if n <= times {
			return n, err
		}
		return n, nil
	}
}

func TestWithRetry(t *testing.T) {
	with := func(change func(*resilience.Retry)) resilience.Retry {
		r := steady
		change(&r)
		return r
	}
	none := with(func(r *resilience.Retry) { r.MaxRetries = -1 })
	for name, tc := range map[string]struct {
		retry    resilience.Retry
		fn       func(context.Context) (int, error)
		attempts int
		is       []error
		err      error // exactly, if is has none
		took     time.Duration
	}{
		"at once":       {steady, failing(0, nil), 1, nil, nil, 0},
		"at last":       {steady, failing(3, errBoom), 4, nil, nil, 700 * time.Millisecond},
		"never":         {steady, failing(9, errBoom), 4, []error{resilience.CodeRetryExhausted, errBoom}, nil, 700 * time.Millisecond},
		"no retries":    {none, failing(9, errBoom), 1, nil, errBoom, 0},
		"one retry":     {with(func(r *resilience.Retry) { r.MaxRetries = 1 }), failing(9, errBoom), 2, []error{resilience.CodeRetryExhausted, errBoom}, nil, 100 * time.Millisecond},
		"capped":        {with(func(r *resilience.Retry) { r.MaxRetries = 6 }), failing(9, errBoom), 7, []error{resilience.CodeRetryExhausted}, nil, 3500 * time.Millisecond},
		"permanent":     {steady, failing(9, resilience.MarkPermanent(errBoom)), 1, nil, resilience.MarkPermanent(errBoom), 0},
		"invalid":       {steady, failing(9, resilience.MarkInvalid(errBoom)), 1, nil, resilience.MarkInvalid(errBoom), 0},
		"canceled":      {steady, failing(9, context.Canceled), 1, nil, context.Canceled, 0},
		"panic":         {steady, func(context.Context) (int, error) { panic(io.EOF) }, 0, []error{resilience.CodeToolFailed, io.EOF}, nil, 0},
		"asks for more": {steady, failing(1, waitError{time.Minute}), 2, nil, nil, time.Minute},
		"asks for less": {steady, failing(1, waitError{time.Millisecond}), 2, nil, nil, 100 * time.Millisecond},
		"an Error asks": {steady, failing(1, resilience.CircuitOpenError("db", time.Minute)), 2, nil, nil, time.Minute},
		"no delay":      {with(func(r *resilience.Retry) { r.Backoff = resilience.Backoff{Base: 1, Max: 1} }), failing(2, errBoom), 3, nil, nil, 0},
		"own classes": {with(func(r *resilience.Retry) {
			r.Classify = func(error) resilience.Class { return resilience.ClassPermanent }
		}), failing(9, errBoom), 1, nil, errBoom, 0},
		"classes that fail": {with(func(r *resilience.Retry) { r.Classify = func(error) resilience.Class { panic("c") } }), failing(3, errBoom), 4, nil, nil, 700 * time.Millisecond},
		"callback fails":    {with(func(r *resilience.Retry) { r.OnRetry = func(int, time.Duration, error) { panic("c") } }), failing(3, errBoom), 4, nil, nil, 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				value, err := resilience.WithRetry(t.Context(), tc.retry, tc.fn)
				if name == "no delay" {
					assert.Less(t, time.Since(start), time.Microsecond)
				} else {
					assert.Equal(t, tc.took, time.Since(start))
				}
				assert.Equal(t, tc.attempts, value, "the last attempt's value")
				for _, target := range tc.is {
					assert.ErrorIs(t, err, target)
				}
				if tc.is == nil {
					assert.Equal(t, tc.err, err, "unchanged")
				}
			})
		})
	}
}

func TestWithRetryJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delays []time.Duration
		r := resilience.Retry{MaxRetries: 200, OnRetry: func(attempt int, delay time.Duration, err error) {
			assert.Equal(t, len(delays)+1, attempt)
			assert.Equal(t, errBoom, err)
			delays = append(delays, delay)
		}}
		_, err := resilience.WithRetry(t.Context(), r, failing(999, errBoom))
		assert.EqualError(t, err, "RETRY_EXHAUSTED: The tool failed after 201 attempts")
		require.Len(t, delays, 200)
		assert.LessOrEqual(t, delays[0], 100*time.Millisecond)
		longest := time.Duration(0)
		for _, d := range delays {
			longest = max(longest, d)
		}
		assert.LessOrEqual(t, longest, time.Second)
		assert.Greater(t, longest, 900*time.Millisecond)
	})
}

func TestWithRetryNeverSleepsIntoADeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout  time.Duration
		err      error
		attempts int
		took     time.Duration
	}{
		"no room for one":   {100 * time.Millisecond, errBoom, 1, 0},
		"room for one":      {101 * time.Millisecond, errBoom, 2, 100 * time.Millisecond},
		"no room for three": {700 * time.Millisecond, errBoom, 3, 300 * time.Millisecond},
		"asks for too much": {30 * time.Second, waitError{time.Minute}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				defer cancel()
				start := time.Now()
				value, err := resilience.WithRetry(ctx, steady, failing(9, tc.err))
				assert.Equal(t, tc.took, time.Since(start))
				assert.Equal(t, tc.attempts, value)
				assert.Equal(t, tc.err, err, "the last cause, unchanged")
			})
		})
	}
}

func TestWithRetryWhenTheCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errGone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(250*time.Millisecond, func() { cancel(errGone) })
		start := time.Now()
		value, err := resilience.WithRetry(ctx, steady, failing(9, errBoom))
		assert.Equal(t, 250*time.Millisecond, time.Since(start), "during a sleep")
		assert.Equal(t, 2, value)
		for _, target := range []error{resilience.CodeCanceled, context.Canceled, errGone, errBoom} {
			assert.ErrorIs(t, err, target)
		}
		assert.NotErrorIs(t, err, resilience.CodeTimeout)

		called := false
		_, err = resilience.WithRetry(ctx, steady, func(context.Context) (int, error) { called = true; return 0, nil })
		assert.ErrorIs(t, err, resilience.CodeCanceled)
		assert.False(t, called, "never on a dead context")

		ctx, cancelNow := context.WithCancel(t.Context())
		_, err = resilience.WithRetry(ctx, steady, func(context.Context) (int, error) { cancelNow(); return 0, errBoom })
		assert.Equal(t, errBoom, err, "during an attempt: fn's own error")

		ctx, cancelNow = context.WithCancel(t.Context())
		_, err = resilience.WithRetry(ctx, steady, func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 4 {
				cancelNow()
			}
			return 0, errBoom
		})
		assert.Equal(t, errBoom, err, "during the last attempt too")
	})
}

// When the delay and the context have both ended no attempt is made.
func TestWithRetryAtTheVeryEnd(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		r := resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}, OnRetry: func(int, time.Duration, error) { cancel() }}
		value, err := resilience.WithRetry(ctx, r, failing(9, errBoom))
		require.Equal(t, 1, value, "not called again for a caller who has left")
		require.ErrorIs(t, err, resilience.CodeCanceled)
		require.ErrorIs(t, err, errBoom)
	}
}

func TestWithRetryRefuses(t *testing.T) {
	fine := func(context.Context) (int, error) { panic("not called") }
	for name, tc := range map[string]struct {
		retry resilience.Retry
		want  string
	}{
		"base":   {resilience.Retry{Backoff: resilience.Backoff{Base: -1}}, "VALIDATION_ERROR: Retry: Backoff.Base is -1ns: it must not be negative (0 is the default)"},
		"max":    {resilience.Retry{Backoff: resilience.Backoff{Max: -1}}, "VALIDATION_ERROR: Retry: Backoff.Max is -1ns: it must not be negative (0 is the default)"},
		"under":  {resilience.Retry{Backoff: resilience.Backoff{Base: 2, Max: 1}}, "VALIDATION_ERROR: Retry: Backoff.Max is 1ns: it must not be under Base, 2ns"},
		"jitter": {resilience.Retry{Backoff: resilience.Backoff{Jitter: 7}}, "VALIDATION_ERROR: Retry: Backoff.Jitter is 7: it must be FullJitter, SmallJitter or NoJitter"},
	} {
		_, err := resilience.WithRetry(t.Context(), tc.retry, fine)
		assert.EqualError(t, err, tc.want, name)
	}
	_, err := resilience.WithRetry[int](t.Context(), resilience.Retry{}, nil)
	assert.EqualError(t, err, "TOOL_NOT_FOUND: The tool not found: its function is nil")
	assert.PanicsWithValue(t, "resilience: nil context", func() { _, _ = resilience.WithRetry(noContext, steady, fine) })
	assert.Equal(t, 1, resilience.Attempt(t.Context()))
}

// The primitives nest in any order.
func TestPrimitivesNest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := resilience.NewBreaker("x", resilience.BreakerConfig{})
		slow := hang(time.Hour)

		_, err := resilience.WithRetry(t.Context(), steady, func(ctx context.Context) (string, error) {
			return resilience.WithBreaker(ctx, b, func(ctx context.Context) (string, error) {
				return resilience.WithTimeout(ctx, "x", time.Second, slow)
			})
		})
		assert.ErrorIs(t, err, resilience.CodeRetryExhausted)
		assert.ErrorIs(t, err, resilience.CodeTimeout)

		start := time.Now()
		_, err = resilience.WithTimeout(t.Context(), "x", 1500*time.Millisecond, func(ctx context.Context) (string, error) {
			return resilience.WithRetry(ctx, steady, func(ctx context.Context) (string, error) {
				return resilience.WithBreaker(ctx, b, func(ctx context.Context) (string, error) { return obey(ctx) })
			})
		})
		assert.ErrorIs(t, err, resilience.CodeTimeout)
		assert.Equal(t, 1500*time.Millisecond, time.Since(start))
		synctest.Wait()
		assert.Equal(t, resilience.StateOpen, b.State(), "its fifth failure")
		time.Sleep(time.Hour)
	})
}
