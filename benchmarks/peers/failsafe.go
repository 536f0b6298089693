package peers

import (
	"context"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
)

// newFailsafe composes the policies in the order that failsafe-go recommends, with the
// timeout innermost: each attempt has its own timeout and counts on the breaker. A rejection
// by the breaker isn't worth a retry, so it ends the call.
func newFailsafe(s Settings) Do {
	return forEach(s, func(s Settings) Do {
		retry := failsafeRetry(s).AbortOnErrors(circuitbreaker.ErrOpen).Build()
		return executor(failsafe.With(retry, failsafeBreaker(s), timeout.New[string](s.Timeout)))
	})
}

// newFailsafeCall composes the policies in the guard's order: the whole call has one timeout
// and counts once on the breaker.
func newFailsafeCall(s Settings) Do {
	return forEach(s, func(s Settings) Do {
		return executor(failsafe.With(failsafeBreaker(s), timeout.New[string](s.Timeout), failsafeRetry(s).Build()))
	})
}

// executor returns a Do whose calls share e and differ only in their contexts. A Timeout ends
// the context of the execution, so that is the context which the tool gets. The closure is
// allocated for each call, as it would be in a program that calls a tool with arguments.
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
