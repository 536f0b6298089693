package resilience_test

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// permanent makes an unexplained failure ClassPermanent, which no report means.
var permanent = resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassPermanent})

func TestWhatAReportSays(t *testing.T) {
	report := func(errs ...error) toolFunc {
		return func(ctx context.Context) (int, error) {
			for _, err := range errs {
				resilience.ReportBackend(ctx, err)
			}
			return 0, errOwn
		}
	}
	for name, tc := range map[string]struct {
		fn        toolFunc
		code      resilience.Code
		retryable bool
		counted   int
	}{
		"a lost connection": {report(errDial), lost, true, 1},
		"other trouble":     {report(sqlError("57P01")), failed, true, 1},
		"a rejection":       {report(statusError(404)), resilience.CodeValidation, false, 0},
		"a good answer":     {report(nil), failed, false, 0},
		"a cancellation":    {report(context.Canceled), failed, false, 1},
		"it goes on":        {report(fmt.Errorf("page: %w", resilience.ErrUnfinished)), failed, false, 1},
		"a canceled query":  {report(sqlError("57014")), failed, false, 1},
		"408":               {report(statusError(408)), failed, false, 1},
		"marked":            {report(resilience.MarkBackend(sqlError("57014"))), failed, true, 1},
		"the last of them":  {report(nil, errDial), lost, true, 1},
		"one end": {func(ctx context.Context) (int, error) {
			end := resilience.BeginRequest(ctx)
			end(errDial)
			end(nil)
			return 0, errOwn
		}, lost, true, 1},
		"within a call that isn't guarded": {func(ctx context.Context) (int, error) {
			return resilience.WithTimeout(ctx, "page", time.Minute, report(errDial))
		}, lost, true, 1},
		"at the end of a bound within the tool": {func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, nil)
			_, _ = resilience.WithTimeout(ctx, "search", time.Second, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return report(ctx.Err())(ctx)
			})
			synctest.Wait() // for the report of the abandoned function
			return 0, errOwn
		}, resilience.CodeTimeout, true, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Retry: &resilience.Retry{MaxRetries: -1}})
			r := resilience.Run(t.Context(), g, "x", tc.fn, permanent)
			require.Error(t, r.Err)
			assert.Equal(t, tc.code, r.Err.Code)
			assert.Equal(t, tc.retryable, r.Err.Retryable)
			assert.Equal(t, tc.counted, g.Health()[0].ConsecutiveFailures)
		})
	}
}

func TestReportOutsideOfACallDoesNothing(t *testing.T) {
	assert.NotPanics(t, func() { resilience.ReportBackend(t.Context(), errBoom) })
	_, err := sending("GET", answering(503))(t.Context())
	assert.Equal(t, errOwn, err)
}

// Each attempt is judged by its own reports, whenever those of an earlier attempt come.
func TestReportsBelongToTheirAttempt(t *testing.T) {
	report := resilience.ReportBackend
	for takes, want := range map[time.Duration]resilience.Code{
		0: resilience.CodeToolFailed, time.Second: resilience.CodeToolFailed, time.Minute: resilience.CodeTimeout,
	} {
		runInBubble(t, takes.String(), func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: 5 * time.Second, Effect: resilience.ReadOnly})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 2 {
					time.Sleep(takes)
					return 0, errOwn
				}
				report(ctx, errBoom)
				report(ctx, waitError{3 * time.Second})
				time.AfterFunc(3500*time.Millisecond, func() { report(ctx, waitError{time.Second}) })
				return 0, errOwn
			}, behindAdapter)
			time.Sleep(takes)
			assert.Equal(t, 2, r.Attempts)
			assert.Equal(t, want, r.Err.Code)
			assert.Zero(t, r.Err.RetryAfter)
			assert.Equal(t, want == resilience.CodeTimeout, g.Health()[0].ConsecutiveFailures == 1)
		})
	}
}

// A failure that an inner call has counted doesn't count for the calls around it, which may have done without it.
func TestReportEndsAtTheInnermostGuardedCall(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
		_, _ = resilience.Do(ctx, g, "inner", func(ctx context.Context) (int, error) {
			resilience.ReportBackend(ctx, statusError(503))
			return 0, errOwn
		})
		return 0, errOwn
	}, behindAdapter)
	assert.False(t, r.Err.HasGuidance())
	assert.Equal(t, 1, g.Breaker("inner").Failures())
	assert.Zero(t, g.Breaker("outer").Failures())
}

func TestClassifySeesWhatTheBackendSaid(t *testing.T) {
	var seen []resilience.Class
	g := newGuard(t, resilience.Config{Classify: func(err error) resilience.Class {
		assert.EqualError(t, err, errOwn.Error())
		seen = append(seen, resilience.Classify(err))
		return resilience.Classify(err)
	}})
	_, err := resilience.Do(t.Context(), g, "x", sending("GET", answering(404)))
	assert.ErrorIs(t, err, errOwn)
	assert.Equal(t, []resilience.Class{resilience.ClassInvalid}, seen)
}

// A refused request has changed nothing, but an earlier one may have. A mark covers the requests of its
// attempt, also for later attempts.
func TestPromise8RequestByItsEnd(t *testing.T) {
	rejected, noEffect := resilience.MarkInvalid(errBoom), resilience.MarkNoEffect(errOwn)
	request := func(ends ...error) toolFunc {
		return func(ctx context.Context) (int, error) {
			end := resilience.BeginRequest(ctx)
			for _, err := range ends {
				end(err)
			}
			return 0, nil
		}
	}
	for name, tc := range map[string]struct {
		tool     toolFunc
		attempts int
	}{
		"none":            {failing(9, errDial), 4},
		"it was rejected": {after(request(rejected), errDial), 4},
		"it was answered": {after(request(nil), errDial), 1},
		"it goes on":      {after(request(), errDial), 1},
		"each is marked":  {after(request(nil), noEffect), 4},
		"the first is marked": {func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) > 1 {
				return 0, errDial
			}
			return after(request(nil), noEffect)(ctx)
		}, 4},
	} {
		runInBubble(t, name, func(t *testing.T) {
			assert.Equal(t, tc.attempts, runNonIdempotent(t, tc.tool).Attempts)
		})
	}
}

// Something may have been changed anywhere in the call. It isn't repeated then.
func TestPromise8RequestThatMayHaveChangedSomething(t *testing.T) {
	refused, wrote := sending("POST", broken(errDial)), sending("POST", answering(200))
	noAnswer := sending("POST", roundTrips(unanswered))
	insert := fmt.Errorf("insert: %w", context.DeadlineExceeded)
	nonIdempotent := resilience.ForRequest(resilience.Request{
		Effect: resilience.NonIdempotent,
	})
	g := guardWith(t, resilience.Tool{})

	for name, tool := range map[string]toolFunc{
		"after a look-up":                          after(sending("GET", answering(404)), io.ErrUnexpectedEOF),
		"after a look-up that was refused":         after(sending("GET", broken(errDial)), insert),
		"after a write that was refused":           after(refused, insert),
		"after 429":                                sending("GET", answering(429)),
		"before an error that was wrapped in ours": after(wrote, resilience.AsError("x", errDial)),
		"in an inner call": func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, g, "inner", after(wrote, errDial), nonIdempotent)
		},
		"in an inner call that has timed out": func(ctx context.Context) (int, error) {
			_, _ = resilience.WithTimeout(ctx, "primary", time.Second, noAnswer)
			return refused(ctx)
		},
		"in a request under way": func(ctx context.Context) (int, error) {
			go func() { _, _ = noAnswer(ctx) }()
			synctest.Wait()
			return refused(ctx)
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g = guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", tool)
			assert.Equal(t, 1, r.Attempts)
			assert.False(t, r.Err.Retryable)
			time.Sleep(time.Hour)
		})
	}
}

// A goroutine of the first attempt goes on during the delay, and during the second attempt.
func TestPromise8RequestsThatBeginAfterTheAttempt(t *testing.T) {
	const soon = 10 * time.Millisecond
	read, rejected := sending("GET", answering(200)), sending("POST", answering(404))
	write := func(ctx context.Context) { resilience.ReportBackend(ctx, nil) }
	g := guardWith(t, resilience.Tool{})
	for name, tc := range map[string]struct {
		after    time.Duration
		write    func(context.Context)
		attempts int
	}{
		"a request during the delay": {soon, write, 1},
		"a call during the delay": {soon, func(ctx context.Context) {
			_, _ = resilience.Do(ctx, g, "write", succeed)
		}, 1},
		"and the breaker opens": {soon, func(ctx context.Context) {
			write(ctx)
			trip(t, g.Breaker("x"))
		}, 1},
		"a request during the second attempt": {500 * time.Millisecond, write, 2},
		"a look-up":                           {soon, func(ctx context.Context) { _, _ = read(ctx) }, 4},
		"a rejected request":                  {soon, func(ctx context.Context) { _, _ = rejected(ctx) }, 4},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g = guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 1 {
					time.AfterFunc(tc.after, func() { tc.write(context.WithoutCancel(ctx)) })
				} else {
					time.Sleep(time.Second)
				}
				return 0, syscall.ECONNREFUSED
			})
			assert.Equal(t, tc.attempts, r.Attempts)
			if tc.attempts < 4 {
				assert.False(t, r.Err.Retryable)
				assert.Contains(t, r.Err.Suggestion, "It may have taken effect: check")
			}
		})
	}
}

// A request may begin while the error of its attempt is classified. It prevents the agent's retry, too.
func TestPromise8RequestThatBeginsDuringTheExamination(t *testing.T) {
	for name, tc := range map[string]struct {
		class resilience.Class
		err   error
		ends  []error // of the requests that begin meanwhile
		want  string
	}{
		"none":      {resilience.ClassPermanent, sqlError("40001"), nil, suggestChange}, // it was rolled back
		"a request": {resilience.ClassPermanent, sqlError("40001"), []error{nil}, suggestCheck},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var begin func()
			cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
			cfg.Classify = func(error) resilience.Class { begin(); return tc.class }
			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
				begin = func() {
					for _, err := range tc.ends {
						resilience.BeginRequest(ctx)(err)
					}
				}
				return 0, tc.err
			})
			assert.Equal(t, 1, r.Attempts)
			assert.Equal(t, tc.want, r.Err.Suggestion)
		})
	}
}
