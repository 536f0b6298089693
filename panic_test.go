package resilience_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPanicHasItsValueAndItsStack(t *testing.T) {
	_, err := resilience.WithTimeout(t.Context(), "x", time.Second, panicking("p"))
	var p *resilience.PanicError
	require.ErrorAs(t, err, &p)
	assert.Equal(t, "p", p.Value)
	assert.EqualError(t, p, "panic: p")
	assert.Contains(t, string(p.Stack), "panicking")
}

// Other values aren't printed: one that contains itself has no end.
func TestPanicHasTheTextOfAnErrorOrAString(t *testing.T) {
	for want, value := range map[string]any{
		"boom": errors.New("boom"), "text": "text", "1s": time.Second,
		"a value of type int": 7, "a value of type []string": []string{"a"},
	} {
		assert.EqualError(t, &resilience.PanicError{Value: value}, "panic: "+want)
	}
}

func TestPromise7PanicWithAValueThatContainsItself(t *testing.T) {
	parent := map[string]any{"name": "root"}
	parent["children"] = []any{map[string]any{"name": "leaf", "parent": parent}}
	r, _ := runTool(t, resilience.Tool{}, panicking(parent), resilience.Debug())
	assert.Equal(t, "panic: a value of type map[string]interface {}", r.Err.Details["cause"])
}

// A panic is a failure of the tool, whatever error it panics with, in both modes.
func TestPanicIsAPermanentFailureWhateverItsValue(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		for _, value := range []error{
			io.ErrUnexpectedEOF,
			context.DeadlineExceeded,
			syscall.ECONNREFUSED,
			resilience.TimeoutError("inner", 1),
			resilience.MarkNoEffect(errBoom),
		} {
			r, counted := runTool(t, resilience.Tool{Cooperative: cooperative}, panicking(value))
			assert.Equal(t, resilience.CodeToolFailed, r.Err.Code, "%v", value)
			assert.Equal(t, 1, r.Attempts, "%v", value)
			assert.False(t, r.Err.Retryable, "%v", value)
			assert.ErrorIs(t, r.Err, value)
			assert.True(t, counted)
		}
	})
}

// runAside returns the error of a call that is made on a goroutine of its own: Goexit of a Cooperative tool ends that.
func runAside(ctx context.Context, g *resilience.Guard, fn toolFunc) *resilience.Error {
	return resilience.All(ctx, g, resilience.Call[int]{Tool: "x", Func: fn})[0].Err
}

// A Cooperative tool that fails after the end of its call, in whichever way, has the code of that end.
func TestPromise6FailureOfACooperativeToolWhoseCallHasEnded(t *testing.T) {
	for name, crash := range map[string]toolFunc{
		"panics": panicking("x"), "exits": exit, "fails": failing(9, errBoom),
	} {
		for by, tc := range map[string]struct {
			caller   caller
			code     resilience.Code
			failures int
		}{
			"its caller":            {leavingAfter(time.Second), resilience.CodeCanceled, 0},
			"its caller's deadline": {withTimeout(time.Second), resilience.CodeTimeout, 0},
			"its own timeout":       {withTimeout(time.Hour), resilience.CodeTimeout, 1},
		} {
			runInBubble(t, name+" after "+by, func(t *testing.T) {
				g := guardWith(t, resilience.Tool{Timeout: time.Minute, Cooperative: true})
				ctx, cancel := tc.caller(t.Context())
				defer cancel()

				err := runAside(ctx, g, func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return crash(ctx)
				})
				assert.ErrorIs(t, err, tc.code)
				assert.Equal(t, tc.failures, g.Breaker("x").Failures())
				assert.Equal(t, name == "exits", errors.Is(err, resilience.ErrGoexit))
			})
		}
	}
}

// A crash after a failure is joined with its cause, for the caller and for Health.
func TestPromise4CrashAfterAFailureHidesNoCause(t *testing.T) {
	for name, crash := range map[string]toolFunc{"panic": panicking("x"), "Goexit": exit} {
		inBothModes(t, func(t *testing.T, cooperative bool) {
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
			err := runAside(t.Context(), g, func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 2 {
					return crash(ctx)
				}
				return 0, errBoom
			})
			for _, err := range []error{err, g.Health()[0].LastError} {
				assert.ErrorIs(t, err, errBoom, name)
				assert.Equal(t, name == "Goexit", errors.Is(err, resilience.ErrGoexit), name)
			}
		})
	}
}

func TestPromise8CrashAsksTheAgentToCheck(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.NonIdempotent: suggestCheck, resilience.EffectUnknown: suggestChange + " " + suggestCaution,
	} {
		inBothModes(t, func(t *testing.T, cooperative bool) {
			for _, crash := range []toolFunc{exit, panicking("p")} {
				g := guardWith(t, resilience.Tool{Effect: effect, Cooperative: cooperative})
				assert.Equal(t, want, runAside(t.Context(), g, crash).Suggestion)
			}
		})
	}
}
