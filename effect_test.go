package resilience_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
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

func TestEffectFromHintsFollowsTheProtocolsDefaults(t *testing.T) {
	assert.Equal(t, resilience.NonIdempotent, resilience.EffectFromHints(false, false))
	assert.Equal(t, resilience.Idempotent, resilience.EffectFromHints(false, true))
	assert.Equal(t, resilience.ReadOnly, resilience.EffectFromHints(true, false))
	assert.Equal(t, resilience.ReadOnly, resilience.EffectFromHints(true, true))
}

// An agent isn't asked to try again where that might do harm.
func TestErrorOfANonIdempotentToolIsRetryableOnlyIfItHadNoEffect(t *testing.T) {
	const checkIn = "It may have taken effect: check that in 1 second before you call it again."
	type own = resilience.Error
	gone := resilience.ConnectionLostError("gone")
	sent := unmarshaled(t, `{"code":"BUSY","retryable":true,"suggestion":"`+suggestRetry+`"}`)
	waits := func(code resilience.Code) *own { return &own{Code: code, Retryable: true, RetryAfter: time.Second} }
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

		"permanent, in the words of backoff": {backoff.Permanent(gone), false, suggestCheck},
		"says to try again":                  {sent, false, suggestCheck},
		"a timeout, our suggestion":          {&own{Code: timedOut}, false, suggestCheck},
		"exhausted, our suggestion":          {&own{Code: exhausted, Retryable: true}, false, suggestCheck},
		"exhausted, not retryable":           {&own{Code: exhausted}, false, suggestChange},
		"no code, our suggestion":            {waits(""), false, checkIn},
		"a code of its own, our suggestion":  {waits("BUSY"), false, checkIn},
		"a code of its own, not retryable":   {&own{Code: "DENIED"}, false, suggestChange},
		"invalid, our suggestion":            {waits(invalid), false, suggestCorrect},
		"no such tool, our suggestion":       {waits(resilience.CodeToolNotFound), false, suggestList},

		"a timeout, its own suggestion":         {mine(timedOut), false, "Mine"},
		"lost connection, its own suggestion":   {mine(lost), false, "Mine"},
		"no code, its own suggestion":           {mine(""), true, "Mine"},
		"a code of its own, its own suggestion": {mine("BUSY"), true, "Mine"},
		"exhausted, its own suggestion":         {mine(exhausted), true, "Mine"},
	} {
		r, _ := runTool(t, resilience.Tool{Effect: resilience.NonIdempotent, Retry: once.Retry}, failing(9, tc.err))
		require.NotNil(t, r.Err, name)
		assert.Equal(t, tc.retryable, r.Err.Retryable, name)
		assert.Equal(t, tc.suggestion, r.Err.Suggestion, name)
		assert.ErrorIs(t, r.Err, tc.err, name)
	}
}

// unmarshaled returns the error that a server has sent.
func unmarshaled(t *testing.T, text string) error {
	t.Helper()
	e := new(resilience.Error)
	require.NoError(t, json.Unmarshal([]byte(text), e))
	return e
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
		"certainly no effect":  {resilience.MarkNoEffect(errBoom), suggestRetry},
		"the caller's mistake": {resilience.MarkInvalid(errBoom), suggestCorrect},
		"no such tool":         {&resilience.Error{Code: resilience.CodeToolNotFound}, suggestList},
		"a code of its own":    {&resilience.Error{Code: "BUSY", Retryable: true}, suggestRetry + caution},
		"it asks for no time":  {waitError{-1}, suggestRetry + caution},
		"lost for good":        {resilience.MarkPermanent(syscall.ECONNREFUSED), suggestChange + caution},
		"too slow for good":    {resilience.MarkPermanent(context.DeadlineExceeded), suggestChange + caution},
		"failed for good":      {resilience.MarkPermanent(waitError{time.Minute}), suggestChange},
		"an own, for good":     {resilience.MarkPermanent(&resilience.Error{Retryable: true}), suggestChange},
		"it says nothing":      {resilience.MarkNeutral(errBoom), suggestChange + caution},
		"the tool's own words": {&resilience.Error{Retryable: true, Suggestion: "Mine"}, "Mine"},
	} {
		words := func(effect resilience.Effect) string {
			r, _ := runTool(t, resilience.Tool{Effect: effect, Retry: once.Retry}, failing(9, tc.err))
			return r.Err.Suggestion
		}
		assert.Equal(t, tc.want, words(resilience.EffectUnknown), name)
		assert.Equal(t, strings.TrimSuffix(tc.want, caution), words(resilience.ReadOnly), name)
		assert.Equal(t, strings.TrimSuffix(tc.want, caution), resilience.AsError("x", tc.err).Suggestion, name)
	}
}

// The first request has been done, whatever has become of the last one.
func TestPromise8RejectionAfterAWriteAsksTheAgentToCheck(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.NonIdempotent: suggestCheck,
		resilience.EffectUnknown: suggestCorrect + " " + suggestCaution,
		resilience.Idempotent:    suggestCorrect,
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

// The call may have taken effect before its caller left, and also if its error tells nothing.
func TestCallThatSaysNothingMayHaveHadAnEffect(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.ReadOnly: suggestChange, resilience.EffectUnknown: suggestChange + " " + suggestCaution,
		resilience.NonIdempotent: suggestCheck,
	} {
		r, _ := runTool(t, resilience.Tool{Effect: effect}, failing(9, errBoom), behindAdapter)
		assert.Equal(t, want, r.Err.Suggestion, effect)
		assert.False(t, r.Err.Retryable)
	}

	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := leavingAfter(time.Second)(t.Context())
		defer cancel()
		r := resilience.Run(ctx, guardWith(t, writes), "x", untilDone)
		synctest.Wait()
		assert.Equal(t, resilience.CodeCanceled, r.Err.Code)
		assert.Equal(t, suggestCheck, r.Err.Suggestion)
	})
}

// A mark or a crash of an inner call overrides the error that it wraps, also if Classify disagrees.
func TestPromise8MarkPermanentIsNotRepeatedWhateverClassifySays(t *testing.T) {
	cfg := classifying(writes, func(error) resilience.Class { return resilience.ClassTransient })
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

// An exhausted call recommends another one, later. A tool around it that may have done something else must not pass
// that on.
func TestExhaustedCallWithinAnotherTool(t *testing.T) {
	const later = "4 attempts failed. Try again later."
	for effect, want := range map[resilience.Effect]string{
		resilience.ReadOnly: later, resilience.EffectUnknown: later + " " + suggestCaution,
		resilience.NonIdempotent: suggestCheck,
	} {
		runInBubble(t, effect.String(), func(t *testing.T) {
			g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{
				"outer": {Effect: effect}, "inner": {Effect: resilience.ReadOnly},
			}})
			r := resilience.Run(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
				return resilience.Do(ctx, g, "inner", failing(9, errBoom))
			})
			assert.Equal(t, exhausted, r.Err.Code)
			assert.Equal(t, 1, r.Attempts)
			assert.Equal(t, effect != resilience.NonIdempotent, r.Err.Retryable)
			assert.Equal(t, want, r.Err.Suggestion)
		})
	}
}

// A write is repeated only if the marks of all its errors permit that, or none of them may have had an effect.
func TestPromise8MarksOfSomeErrorsDoNotSpeakForAll(t *testing.T) {
	marked, neutral := resilience.MarkNoEffect(errBoom), resilience.MarkNeutral(errBoom)
	for name, tc := range map[string]struct {
		fn       toolFunc
		attempts int
	}{
		"the first":    {reporting(nil, errors.Join(marked, errBoom)), 1},
		"the last":     {reporting(nil, errors.Join(errBoom, marked)), 1},
		"and refused":  {reporting(nil, errors.Join(marked, syscall.ECONNREFUSED)), 1},
		"all of them":  {reporting(nil, errors.Join(marked, marked)), 4},
		"neutral":      {reporting(nil, errors.Join(neutral, marked)), 1},
		"neutral too":  {reporting(nil, errors.Join(neutral, errDial)), 1},
		"was refused":  {reporting(errDial, errors.Join(neutral, errBoom)), 4},
		"neutral only": {failing(9, errors.Join(neutral, errDial)), 1},
		"last neutral": {failing(9, errors.Join(errDial, neutral)), 1},
		"both refused": {failing(9, errors.Join(resilience.MarkNeutral(errDial), errDial)), 4},
		"both marked":  {failing(9, errors.Join(resilience.MarkNeutral(errDial), marked)), 4},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, writes, tc.fn)
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// A deadlineLike is context.DeadlineExceeded by its Is method alone.
type deadlineLike struct{}

func (deadlineLike) Error() string        { return "too late" }
func (deadlineLike) Is(target error) bool { return target == context.DeadlineExceeded }

// A refused request is no proof if the tool's error shows that something else was done.
func TestPromise8ARefusedRequestSpeaksOnlyForAnErrorThatTellsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		attempts int
	}{
		"nothing":         {errBoom, 4},
		"a reset":         {fmt.Errorf("x: %w", syscall.ECONNRESET), 1},
		"words":           {&resilience.Error{Message: "The order is kept", Retryable: true}, 1},
		"trouble":         {statusError(503), 1},
		"a deadline":      {fmt.Errorf("x: %w", context.DeadlineExceeded), 1},
		"like a deadline": {deadlineLike{}, 1},
		"first a reset":   {errors.Join(syscall.ECONNRESET, errBoom), 1},
		"then a reset":    {errors.Join(errBoom, syscall.ECONNRESET), 1},
		"first a trouble": {errors.Join(statusError(503), errBoom), 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, writes, reporting(errDial, tc.err))
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// asOnly reaches another error only by its As method.
type asOnly struct{ inner error }

func (asOnly) Error() string        { return "as" }
func (e asOnly) As(target any) bool { return errors.As(e.inner, target) }

// A refused request is no reason to repeat a tool of which an earlier attempt has done something.
func TestPromise8LastOfSeveralAttemptsIsNotAll(t *testing.T) {
	several := func(ctx context.Context) error {
		inner := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: resilience.Retry{MaxRetries: 1}})
		r := resilience.Run(ctx, inner, "inner", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) > 1 {
				resilience.ReportBackend(ctx, errDial)
			}
			return 0, errBoom
		})
		return errors.Unwrap(r.Err)
	}
	for name, tc := range map[string]struct {
		err      func(context.Context) error
		attempts int
	}{
		"one attempt":        {func(context.Context) error { return errBoom }, 4},
		"several":            {several, 1},
		"several, behind As": {func(ctx context.Context) error { return asOnly{several(ctx)} }, 1},
		"several, and one":   {func(ctx context.Context) error { return errors.Join(several(ctx), errBoom) }, 1},
		"one, and several":   {func(ctx context.Context) error { return errors.Join(errBoom, several(ctx)) }, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, writes, func(ctx context.Context) (int, error) {
				err := tc.err(ctx)
				resilience.ReportBackend(ctx, errDial)
				return 0, err
			})
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// A cause without effect is no proof if the error around it may stand for more than one call.
func TestPromise8ErrorsAroundOneThatHadNoEffect(t *testing.T) {
	none, code := resilience.MarkNoEffect(errBoom), resilience.CodeToolFailed
	panicked, down := &resilience.PanicError{Value: none}, errors.Unwrap(noConnection(t))
	unopened := &fs.PathError{Op: "open", Err: syscall.EMFILE}
	for name, tc := range map[string]struct {
		err    error
		repeat bool
	}{
		"an Error of a single call":   {&resilience.Error{Code: code, Retryable: true, Err: none}, true},
		"an Error of several":         {&resilience.Error{Code: "BUSY", Retryable: true, Err: none}, false},
		"a panic":                     {&resilience.Error{Code: code, Retryable: true, Err: panicked}, false},
		"several, then no connection": {&resilience.Error{Code: "BUSY", Retryable: true, Err: down}, false},
		"a limit that ends soon": {
			&resilience.Error{Code: resilience.CodeRateLimited, Retryable: true, RetryAfter: time.Second}, true,
		},
		"an error of os that holds it": {&os.LinkError{Op: "rename", Err: none}, true},
		"one of os that doesn't":       {&os.LinkError{Op: "symlink", Err: syscall.ESTALE}, false},
		"an open and a dial":           {errors.Join(unopened, syscall.ECONNREFUSED), true},
		"an open and another":          {errors.Join(unopened, errBoom), false},
		"a dial, while reading":        {&net.OpError{Op: "read", Net: "tcp", Err: errDial}, false},
		"perhaps committed":            {sqlError("40003"), false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			r, _ := runTool(t, writes, failing(9, tc.err))
			assert.Equal(t, tc.repeat, r.Attempts > 1)
		})
	}
}

// A mark within a panic is no proof: the tool may have done something before it.
func TestPromise8PanicWithAMarkAfterARequest(t *testing.T) {
	transient := func(error) resilience.Class { return resilience.ClassTransient }
	for name, tc := range map[string]struct {
		err    error
		repeat bool
	}{
		"a mark":  {resilience.MarkNoEffect(errBoom), true},
		"a panic": {fmt.Errorf("x: %w", &resilience.PanicError{Value: resilience.MarkNoEffect(errBoom)}), false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := classifying(writes, transient)
			cfg.Tools["inner"] = writes
			g := newGuard(t, cfg)
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				_, err := resilience.Do(ctx, g, "inner", succeed)
				assert.NoError(t, err)
				return 0, tc.err
			})
			assert.Equal(t, tc.repeat, r.Attempts > 1)
		})
	}
}
