package resilience_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
	for name, tc := range map[string]struct {
		err        error
		retryable  bool
		suggestion string
	}{
		"inner timeout": {
			err:        resilience.TimeoutError("inner", time.Second),
			suggestion: suggestCheck,
		},
		"lost connection": {
			err:        resilience.ConnectionLostError("gone"),
			suggestion: suggestCheck,
		},
		"lost connection, the tool's own suggestion": {
			err:        &resilience.Error{Code: resilience.CodeConnectionLost, Retryable: true, Suggestion: "Mine"},
			suggestion: "Mine",
		},
		"connection that was never made": {
			err: &resilience.Error{
				Code: resilience.CodeConnectionLost, Retryable: true, Suggestion: "Mine", Err: syscall.ECONNREFUSED,
			},
			retryable: true, suggestion: "Mine",
		},
		"the tool's own suggestion": {
			err:       &resilience.Error{Message: "Busy", Retryable: true, Suggestion: "Mine"},
			retryable: true, suggestion: "Mine",
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
