package resilience_test

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEffectHasAName(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.EffectUnknown: "unknown",
		resilience.ReadOnly:      "read-only",
		resilience.Idempotent:    "idempotent",
		resilience.NonIdempotent: "non-idempotent",
		resilience.Effect(9):     "Effect(9)",
	} {
		assert.Equal(t, want, effect.String())
	}
}

func TestEffectFromHintsFollowsTheProtocolsDefaults(t *testing.T) {
	assert.Equal(t, resilience.NonIdempotent, resilience.EffectFromHints(false, false))
	assert.Equal(t, resilience.Idempotent, resilience.EffectFromHints(false, true))
	assert.Equal(t, resilience.ReadOnly, resilience.EffectFromHints(true, false))
	assert.Equal(t, resilience.ReadOnly, resilience.EffectFromHints(true, true))
}

// An agent isn't asked to try again where that might do harm.
func TestErrorOfANonIdempotentToolIsRetryableOnlyIfItHadNoEffect(t *testing.T) {
	const lost, timeout = resilience.CodeConnectionLost, resilience.CodeTimeout
	const checkIn = "It may have taken effect: check that in 1 second before you call it again."
	const correct, list = "Correct the arguments, or use another tool.", "List the available tools and call one of those."
	const exhausted, invalid = resilience.CodeRetryExhausted, resilience.CodeValidation
	type own = resilience.Error
	gone := resilience.ConnectionLostError("gone")
	sent := unmarshaled(t, `{"code":"BUSY","retryable":true,"suggestion":"`+suggestRetry+`"}`)
	mine := func(code resilience.Code) *own { return &own{Code: code, Retryable: true, Suggestion: "Mine"} }
	neverMade := mine(lost)
	neverMade.Err = syscall.ECONNREFUSED
	for name, tc := range map[string]struct {
		err        error
		retryable  bool
		suggestion string
	}{
		"inner timeout":                  {resilience.TimeoutError("inner", time.Second), false, suggestCheck},
		"lost connection":                {gone, false, suggestCheck},
		"connection that was never made": {neverMade, true, "Mine"},
		"made by AsError":                {resilience.AsError("x", errBoom), false, suggestCheck},
		"an inner rejection":             {resilience.CircuitOpenError("inner", time.Second), false, checkIn},
		"refused, after something else":  {resilience.MarkPermanent(syscall.ECONNREFUSED), false, suggestCheck},

		"a reset, marked as permanent": {resilience.MarkPermanent(syscall.ECONNRESET), false, suggestCheck},

		"a timeout of its own":                       {&own{Code: timeout, Message: "m"}, false, suggestCheck},
		"permanent, in the words of backoff":         {backoff.Permanent(gone), false, suggestCheck},
		"an Error that is marked as permanent":       {resilience.MarkPermanent(gone), false, suggestCheck},
		"not retryable":                              {&own{Message: "No"}, false, suggestChange},
		"a code of its own, not retryable":           {&own{Code: "DENIED", Message: "No"}, false, suggestChange},
		"exhausted, our suggestion":                  {&own{Code: exhausted, Retryable: true}, false, suggestCheck},
		"a code of its own, which says to try again": {sent, false, suggestCheck},

		"the tool's own error, our suggestion": {
			&own{Message: "Busy", Retryable: true, RetryAfter: time.Second}, false, checkIn,
		},
		"a code of its own, our suggestion": {
			&own{Code: "BUSY", Message: "Busy", Retryable: true, RetryAfter: time.Second}, false, checkIn,
		},
		"invalid, our suggestion":      {&own{Code: invalid, Retryable: true, RetryAfter: time.Second}, false, correct},
		"no such tool, our suggestion": {&own{Code: resilience.CodeToolNotFound, Retryable: true}, false, list},
		"exhausted, not retryable": {
			&own{Code: exhausted}, false, suggestChange,
		},

		"inner timeout, its own suggestion":    {mine(timeout), false, "Mine"},
		"lost connection, its own suggestion":  {mine(lost), false, "Mine"},
		"a code and a suggestion of its own":   {mine("BUSY"), true, "Mine"},
		"exhausted, the tool's own suggestion": {mine(exhausted), true, "Mine"},
		"the tool's own suggestion": {
			&own{Message: "Busy", Retryable: true, Suggestion: "Mine"}, true, "Mine",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{
				Effect: resilience.NonIdempotent,
				Retry:  &resilience.Retry{MaxRetries: -1},
			})

			_, err := resilience.Do(t.Context(), g, "x", failing(9, tc.err))

			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tc.retryable, e.Retryable)
			assert.Equal(t, tc.suggestion, e.Suggestion)
			assert.ErrorIs(t, err, tc.err)
		})
	}
}

// unmarshaled returns the error that a server has sent.
func unmarshaled(t *testing.T, text string) error {
	t.Helper()
	e := new(resilience.Error)
	require.NoError(t, json.Unmarshal([]byte(text), e))
	return e
}

func TestEffectOfTheConfigIsThatOfToolsWithoutOne(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.NonIdempotent: suggestCheck, resilience.ReadOnly: suggestRetry, resilience.Idempotent: suggestRetry,
	} {
		g := newGuard(t, resilience.Config{Effect: effect, Retry: resilience.Retry{MaxRetries: -1}})
		r := resilience.Run(t.Context(), g, "unlisted", failing(9, errBoom))
		assert.Equal(t, want, r.Err.Suggestion, effect)
		assert.Equal(t, effect != resilience.NonIdempotent, r.Err.Retryable, effect)
	}
}

func TestTimeoutOfANonIdempotentToolAsksTheAgentToCheck(t *testing.T) {
	for name, attemptTimeout := range map[string]time.Duration{"of the call": 0, "of an attempt": time.Second} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
			cfg.AttemptTimeout = attemptTimeout

			r := resilience.Run(t.Context(), newGuard(t, cfg), "x", untilDone)
			synctest.Wait()

			assert.False(t, r.Err.Retryable)
			assert.Equal(t, suggestCheck, r.Err.Suggestion)
		})
	}
}

func TestAgentIsToldToTakeCareOnlyWhereTheEffectIsNotKnown(t *testing.T) {
	const caution = " " + suggestCaution
	for name, tc := range map[string]struct {
		err  error
		want string // for EffectUnknown
	}{
		"failure":              {errBoom, suggestRetry + caution},
		"made by AsError":      {resilience.AsError("x", errBoom), suggestRetry + caution},
		"canceled":             {resilience.CodeCanceled, suggestRetry + caution},
		"certainly no effect":  {resilience.MarkTransient(errBoom), suggestRetry},
		"the caller's mistake": {resilience.MarkInvalid(errBoom), "Correct the arguments, or use another tool."},
		"no such tool": {
			&resilience.Error{Code: resilience.CodeToolNotFound}, "List the available tools and call one of those.",
		},
		"a code of its own":     {&resilience.Error{Code: "BUSY", Retryable: true}, suggestRetry + caution},
		"not worth another try": {resilience.MarkPermanent(errBoom), suggestChange},
		"it says nothing":       {resilience.MarkNeutral(errBoom), suggestChange + caution},
		"the tool's own words":  {&resilience.Error{Retryable: true, Suggestion: "Mine"}, "Mine"},
	} {
		t.Run(name, func(t *testing.T) {
			suggestion := func(effect resilience.Effect) string {
				cfg := configWith(resilience.Tool{Effect: effect})
				cfg.Retry.MaxRetries = -1
				return resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(9, tc.err)).Err.Suggestion
			}
			assert.Equal(t, tc.want, suggestion(resilience.EffectUnknown))
			assert.Equal(t, strings.TrimSuffix(tc.want, caution), suggestion(resilience.ReadOnly))
		})
	}
}

// A configured suggestion replaces ours. The caution that the effect needs still follows it.
func TestConfiguredSuggestionIsFollowedByWhatTheEffectNeeds(t *testing.T) {
	const own = "Ask the owner."
	invalid := resilience.MarkInvalid(errBoom)
	notFound := &resilience.Error{Code: resilience.CodeToolNotFound}
	for name, tc := range map[string]struct {
		err                    error
		wrote                  bool
		unknown, nonIdempotent string
	}{
		"failure":                    {errBoom, false, own + " " + suggestCaution, own + " " + suggestCheck},
		"mistake":                    {invalid, false, own, own},
		"no such tool":               {notFound, false, own, own},
		"mistake after a request":    {invalid, true, own + " " + suggestCaution, own + " " + suggestCheck},
		"no such tool after request": {notFound, true, own + " " + suggestCaution, own + " " + suggestCheck},
	} {
		t.Run(name, func(t *testing.T) {
			for effect, want := range map[resilience.Effect]string{
				resilience.EffectUnknown: tc.unknown, resilience.NonIdempotent: tc.nonIdempotent,
				resilience.ReadOnly: own, resilience.Idempotent: own,
			} {
				cfg := configWith(resilience.Tool{Effect: effect})
				cfg.Retry.MaxRetries = -1
				cfg.Suggestions = map[resilience.Code]string{}
				for _, code := range []resilience.Code{
					resilience.CodeToolNotFound, resilience.CodeValidation, resilience.CodeToolFailed,
				} {
					cfg.Suggestions[code] = own
				}
				r := resilience.Run(t.Context(), newGuard(t, cfg), "x", func(ctx context.Context) (int, error) {
					if tc.wrote {
						resilience.ReportBackend(ctx, nil)
					}
					return 0, tc.err
				})
				assert.Equal(t, want, r.Err.Suggestion, effect)
			}
		})
	}
}

// The first request has been done, whatever has become of the last one.
func TestPromise8RejectionAfterAWriteAsksTheAgentToCheck(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.NonIdempotent: suggestCheck,
		resilience.EffectUnknown: "Correct the arguments, or use another tool. " + suggestCaution,
		resilience.Idempotent:    "Correct the arguments, or use another tool.",
	} {
		t.Run(effect.String(), func(t *testing.T) {
			wrote, rejected := sending("POST", answering(200)), sending("POST", answering(404))
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: effect}), "x",
				func(ctx context.Context) (int, error) {
					_, _ = wrote(ctx)
					return rejected(ctx)
				})
			assert.Equal(t, resilience.CodeValidation, r.Err.Code)
			assert.Equal(t, want, r.Err.Suggestion)
		})
	}
}

// The call may have taken effect before its caller left.
func TestCancelOfANonIdempotentToolAsksTheAgentToCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})

		r := resilience.Run(ctx, g, "x", untilDone)
		synctest.Wait()
		assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
		assert.Equal(t, suggestCheck, r.Err.Suggestion)
	})
}

func TestCrashOfANonIdempotentToolAsksTheAgentToCheck(t *testing.T) {
	g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
	r := resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) { panic("p") })
	assert.Equal(t, suggestCheck, r.Err.Suggestion)
	assert.False(t, r.Err.Retryable)
}

// A mark or a crash of an inner call overrides the error that it wraps, also if Classify disagrees.
func TestPromise8MarkPermanentIsNotRepeatedWhateverClassifySays(t *testing.T) {
	cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
	cfg.Classify = func(error) resilience.Class { return resilience.ClassTransient }
	inner := newGuard(t, resilience.Config{})
	for name, fn := range map[string]toolFunc{
		"a mark": failing(9, resilience.MarkPermanent(syscall.ECONNREFUSED)),
		"a crash": func(ctx context.Context) (int, error) {
			return resilience.Do(ctx, inner, "inner", panicking(syscall.ECONNREFUSED))
		},
	} {
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", fn)
		assert.Equal(t, 1, r.Attempts, name)
	}
}

// An inner call whose first attempt may have had an effect isn't repeated because its last one had none.
func TestPromise8TheLastAttemptDoesNotSpeakForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.Idempotent, Timeout: 2 * time.Second})
		cfg.Tools["outer"] = resilience.Tool{Effect: resilience.NonIdempotent}
		cfg.Retry.Backoff = resilience.Backoff{Base: 1500 * time.Millisecond, Jitter: resilience.NoJitter}
		g := newGuard(t, cfg)
		runs := 0
		r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			runs++
			return resilience.Do(ctx, g, "x", failingThen(1, errBoom, errRefusedInsert))
		})
		assert.Equal(t, 1, runs)
		assert.False(t, r.Err.Retryable)
	})
}

// A gateway passes on the error of a call of its own, whose tool may be described otherwise, or not at all.
func TestPromise8WordsOfAnInnerGuardAreOursToo(t *testing.T) {
	const configured = "Restart the app, then try again."
	for name, suggestions := range map[string]map[resilience.Code]string{
		"plain":      nil,
		"configured": {resilience.CodeToolFailed: configured, resilience.CodeTimeout: configured},
	} {
		for failed, fn := range map[string]toolFunc{"a failure": failing(9, errBoom), "a timeout": untilDone} {
			runInBubble(t, name+", "+failed, func(t *testing.T) {
				cfg := configWith(resilience.Tool{Effect: resilience.NonIdempotent})
				cfg.Suggestions = suggestions
				g := newGuard(t, cfg)
				r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					return resilience.Do(ctx, g, "inner", fn)
				})
				synctest.Wait()
				assert.False(t, r.Err.Retryable)
				assert.True(t, strings.HasSuffix(r.Err.Suggestion, suggestCheck), r.Err.Suggestion)
				assert.Equal(t, suggestions != nil, strings.HasPrefix(r.Err.Suggestion, configured))
			})
		}
	}
}

// Behind an MCP SDK, an unexplained failure isn't retryable. It may have had an effect all the same.
func TestFailureThatSaysNothingMayHaveHadAnEffect(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.ReadOnly: suggestChange, resilience.EffectUnknown: suggestChange + " " + suggestCaution,
		resilience.NonIdempotent: suggestCheck,
	} {
		g := guardWith(t, resilience.Tool{Effect: effect})
		r := resilience.Run(t.Context(), g, "x", failing(9, errBoom),
			resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))
		assert.Equal(t, want, r.Err.Suggestion, effect)
		assert.False(t, r.Err.Retryable)
	}
}

// A caution is given once, and only for a tool that needs it.
func TestCautionOfACallWithinAnotherTool(t *testing.T) {
	const configured = "Restart the app."
	for outer, want := range map[resilience.Effect]string{
		resilience.EffectUnknown: configured + " " + suggestCaution,
		resilience.ReadOnly:      configured,
	} {
		for name, suggestions := range map[string]map[resilience.Code]string{
			"plain": nil, "configured": {resilience.CodeToolFailed: configured},
		} {
			for _, inner := range []resilience.Effect{resilience.EffectUnknown, resilience.NonIdempotent} {
				g := newGuard(t, resilience.Config{
					Tools:       map[string]resilience.Tool{"outer": {Effect: outer}, "inner": {Effect: inner}},
					Retry:       resilience.Retry{MaxRetries: -1},
					Suggestions: suggestions,
				})
				r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
					return resilience.Do(ctx, g, "inner", failing(9, errBoom))
				})
				words := r.Err.Suggestion
				cautions := strings.Count(words, suggestCaution) + strings.Count(words, suggestCheck)
				assert.LessOrEqual(t, cautions, 1, "%v, %v, %s: %s", outer, inner, name, words)
				if suggestions != nil && inner == resilience.EffectUnknown {
					assert.Equal(t, want, words, "%v", outer)
				}
			}
		}
	}
}

// An exhausted call recommends another one, later. A tool around it that may have done something else must not pass
// that on.
func TestExhaustedCallWithinAnotherTool(t *testing.T) {
	const later = "4 attempts failed. Try again later."
	for effect, tc := range map[resilience.Effect]struct {
		retryable  bool
		suggestion string
	}{
		resilience.ReadOnly:      {true, later},
		resilience.EffectUnknown: {true, later + " " + suggestCaution},
		resilience.NonIdempotent: {false, suggestCheck},
	} {
		runInBubble(t, effect.String(), func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
				"outer": {Effect: effect}, "inner": {Effect: resilience.ReadOnly},
			}})
			r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", failing(9, errBoom))
			})
			assert.Equal(t, resilience.CodeRetryExhausted, r.Err.Code)
			assert.Equal(t, 1, r.Attempts)
			assert.Equal(t, tc.retryable, r.Err.Retryable)
			assert.Equal(t, tc.suggestion, r.Err.Suggestion)
		})
	}
}
