package peers

import (
	"context"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
)

// newFailsafe composes the policies in the order that failsafe-go recommends, the
// timeout innermost: the limit and the breaker's count are for each attempt. An open
// breaker isn't worth a retry, so that is aborted.
func newFailsafe(s Settings) System {
	return forEach(s, func(s Settings) Do {
		retry := failsafeRetry(s).AbortOnErrors(circuitbreaker.ErrOpen).Build()
		return executor(failsafe.With(retry, failsafeBreaker(s), timeout.New[string](s.Limit)))
	})
}

// newFailsafeCall composes them in the guard's order: the limit and the breaker's
// count are for the whole call.
func newFailsafeCall(s Settings) System {
	return forEach(s, func(s Settings) Do {
		return executor(failsafe.With(failsafeBreaker(s), timeout.New[string](s.Limit), failsafeRetry(s).Build()))
	})
}

// executor is shared by all calls; only a call's context is its own. A Timeout ends
// the context of the execution, which is therefore the one for the tool. The closure is
// an allocation, as that of a program would be which calls a tool with arguments.
func executor(e failsafe.Executor[string]) Do {
	return func(ctx context.Context, _ string, fn Tool) (string, error) {
		return e.WithContext(ctx).GetWithExecution(func(exec failsafe.Execution[string]) (string, error) {
			return fn(exec.Context())
		})
	}
}

func failsafeRetry(s Settings) retrypolicy.Builder[string] {
	b := retrypolicy.NewBuilder[string]().WithMaxRetries(s.Retries)
	if s.Delay > 0 {
		b.WithBackoff(s.Delay, s.maxDelay()).WithJitterFactor(0.5)
	}
	return b
}

func failsafeBreaker(s Settings) failsafe.Policy[string] {
	return circuitbreaker.NewBuilder[string]().
		WithFailureThreshold(uint(s.Failures)).
		WithDelay(s.Cooldown).
		WithSuccessThreshold(1).
		Build()
}
