package resilience_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file holds what the tests of more than one file use.

const modulePath = "github.com/seed8d1e2389/resilience"

// noContext is a nil context, which staticcheck doesn't allow as a literal.
var noContext context.Context

// errBoom is the error of most tools. Its text must never reach an agent.
var errBoom = errors.New("boom at 10.0.0.7 with password hunter2")

// A waitError asks for a delay before the next attempt.
type waitError struct{ delay time.Duration }

func (w waitError) Error() string             { return "busy" }
func (w waitError) RetryAfter() time.Duration { return w.delay }

// A typedNil is a nil pointer that was returned as an error. All its methods panic.
type typedNil struct{ cause error }

func (e *typedNil) Error() string { return e.cause.Error() }
func (e *typedNil) Unwrap() error { return e.cause }

// steady waits 100ms, 200ms, 400ms, 800ms, and so on between attempts, without jitter, and as long as an
// error asks for.
var steady = resilience.Retry{
	Backoff: resilience.Backoff{Max: time.Hour, Jitter: resilience.NoJitter}, MaxElapsed: -1,
}

// tenSecondsApart waits 10s between all attempts.
var tenSecondsApart = resilience.Backoff{Base: 10 * time.Second, Max: 10 * time.Second, Jitter: resilience.NoJitter}

// A toolFunc is the function of a tool.
type toolFunc = func(context.Context) (int, error)

// What a function returns if it comes too late, or has done only a part of its work.
const (
	lateValue    = 1000
	partialValue = 1001
)

// succeed returns 1.
func succeed(context.Context) (int, error) { return 1, nil }

// failing fails with err that many times before it succeeds. It returns the attempt's number.
func failing(times int, err error) toolFunc {
	return func(ctx context.Context) (int, error) {
		n := resilience.Attempt(ctx)
		if n <= times {
			return n, err
		}
		return n, nil
	}
}

// untilDone waits for the end of its context, as a good tool does, and returns its error.
func untilDone(ctx context.Context) (int, error) {
	<-ctx.Done()
	return partialValue, ctx.Err()
}

// failingOnceDone waits for the end of its context, and fails with an error of its own.
func failingOnceDone(err error) toolFunc {
	return func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, err
	}
}

// hang ignores its context for d. In a bubble a test must sleep past it at the end.
func hang(d time.Duration) toolFunc {
	return func(context.Context) (int, error) {
		time.Sleep(d)
		return lateValue, nil
	}
}

// panicking panics with value.
func panicking(value any) toolFunc {
	return func(context.Context) (int, error) { panic(value) }
}

// exit ends its goroutine.
func exit(context.Context) (int, error) {
	runtime.Goexit()
	return 0, nil
}

// notCalled returns the function of a call that must fail before it is made. It fails the test itself, because a call
// recovers its panic.
func notCalled(t *testing.T) toolFunc {
	return func(context.Context) (int, error) {
		t.Error("the function was called")
		return 0, nil
	}
}

// The suggestions of errors that aren't those of a certain code.
const (
	suggestRetry  = "Try again, or use another tool."
	suggestChange = "Do not repeat this call: change the request or use another tool."
	suggestCheck  = "It may have taken effect: check before you call it again."

	suggestCorrect = "Correct the arguments, or use another tool."
	suggestList    = "List the available tools and call one of those."
	suggestCaution = "If it changes anything, check first whether it took effect."
)

// newGuard returns a guard with a valid Config.
func newGuard(t *testing.T, cfg resilience.Config) *resilience.Guard {
	t.Helper()
	g, err := resilience.New(cfg)
	require.NoError(t, err)
	return g
}

// configWith returns a Config in which tool "x" is as given and delays have no jitter.
func configWith(x resilience.Tool) resilience.Config {
	return resilience.Config{Tools: map[string]resilience.Tool{"x": x}, Retry: steady}
}

// guardWith returns a guard of configWith.
func guardWith(t *testing.T, x resilience.Tool) *resilience.Guard {
	t.Helper()
	return newGuard(t, configWith(x))
}

// waitForAbandoned waits until the abandoned calls of the guard's only tool have returned.
func waitForAbandoned(t *testing.T, g *resilience.Guard) {
	t.Helper()
	require.Eventually(t, func() bool { return g.Health()[0].Abandoned == 0 }, 2*time.Minute, time.Millisecond)
}

// report makes a call that ends with err, and reports whether the breaker admitted it.
func report(b *resilience.Breaker, err error) bool {
	done, rejected := b.Allow()
	if rejected != nil {
		return false
	}

	done(err)
	return true
}

// trip opens a closed breaker by five failures.
func trip(t *testing.T, b *resilience.Breaker) {
	t.Helper()
	for range 5 {
		require.True(t, report(b, errBoom))
	}
	require.Equal(t, resilience.StateOpen, b.State())
}

// A caller derives the context of its call from another.
type caller func(context.Context) (context.Context, context.CancelFunc)

// leavingAfter returns a caller that cancels its call after d.
func leavingAfter(d time.Duration) caller {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(d, cancel)
		return ctx, cancel
	}
}

// withTimeout returns a caller with a deadline.
func withTimeout(d time.Duration) caller {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

// contextWithin returns a context with a timeout, or with none if d is zero.
func contextWithin(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	if d == 0 {
		return t.Context()
	}

	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// endedContexts returns a context that is canceled, and one that is past its deadline.
func endedContexts(t *testing.T) (canceled, late context.Context) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel = context.WithDeadline(t.Context(), time.Unix(1, 0))
	t.Cleanup(cancel)
	return canceled, late
}

// runInBubble runs a subtest in a bubble of its own.
func runInBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// inBothModes runs f in bubbles: for tools that are enforced, and for Cooperative ones.
func inBothModes(t *testing.T, f func(t *testing.T, cooperative bool)) {
	t.Helper()
	runInBubble(t, "enforced", func(t *testing.T) { f(t, false) })
	runInBubble(t, "cooperative", func(t *testing.T) { f(t, true) })
}

// An errorTest says what must become of an error that tool "x" returns.
type errorTest struct {
	err     error
	class   resilience.Class
	code    resilience.Code
	message string
}

func (tc errorTest) check(t *testing.T) {
	assert.Equal(t, tc.class, resilience.Classify(tc.err))
	e := resilience.AsError("x", tc.err)
	assert.Equal(t, tc.code, e.Code)
	assert.Equal(t, tc.message, e.Message)
	assert.Equal(t, "x", e.Tool)
	var own *resilience.Error
	if !errors.As(tc.err, &own) { // which would keep its own
		assert.Equal(t, tc.class == resilience.ClassTransient, e.Retryable)
	}
	assert.ErrorIs(t, e, tc.err)
	assert.NotContains(t, jsonOf(t, e), "10.0.0.7")
	assert.NotContains(t, jsonOf(t, e), "hunter2")
}

// due is time.After, but for times that aren't positive. The runtime crashes under the race detector if a
// goroutine of a bubble receives from a timer's channel that is due at once while another timer fires.
func due(d time.Duration) <-chan time.Time {
	if d > 0 {
		return time.After(d)
	}

	now := make(chan time.Time, 1)
	now <- time.Now()
	return now
}

// jsonOf returns v as JSON.
func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// goroutines counts those that were started by one of the packages. Others come and go in a
// test binary as they like.
func goroutines(packages ...string) int {
	buf := make([]byte, 1<<20)
	n := 0
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		for _, p := range packages {
			if strings.Contains(g, "created by "+p+".") {
				n++
			}
		}
	}
	return n
}
