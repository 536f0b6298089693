package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
)

func ExampleWithTimeout() {
	_, err := resilience.WithTimeout(context.Background(), "search", 10*time.Millisecond,
		func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
	fmt.Println(err)
	// Output: TIMEOUT: Tool 'search' exceeded timeout of 10ms
}

func ExampleWithBreaker() {
	breaker := resilience.NewBreaker("db", resilience.BreakerConfig{Failures: 2})
	query := func(context.Context) (string, error) { return "", errors.New("no route to host") }
	for range 3 {
		_, err := resilience.WithBreaker(context.Background(), breaker, query)
		fmt.Println(resilience.AsError("query", err).Code)
	}
	// Output:
	// TOOL_FAILED
	// TOOL_FAILED
	// CIRCUIT_OPEN
}

func ExampleBreaker_Allow() {
	breaker := resilience.NewBreaker("db", resilience.BreakerConfig{})
	done, err := breaker.Allow()
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.New("it went wrong") // the call itself
	done(err)
	fmt.Println(breaker.State())
	// Output: closed
}

func ExampleWithRetry() {
	value, err := resilience.WithRetry(context.Background(), resilience.Retry{MaxRetries: 5},
		func(ctx context.Context) (string, error) {
			if n := resilience.Attempt(ctx); n < 3 {
				return "", fmt.Errorf("attempt %d failed", n)
			}
			return "done", nil
		})
	fmt.Println(value, err)
	// Output: done <nil>
}

func ExampleWithRetry_exhausted() {
	errDown := errors.New("down")
	r := resilience.Retry{MaxRetries: 2, Backoff: resilience.Backoff{Base: time.Millisecond}}
	_, err := resilience.WithRetry(context.Background(), r,
		func(context.Context) (string, error) { return "", errDown })
	fmt.Println(err)
	fmt.Println(errors.Is(err, resilience.CodeRetryExhausted), errors.Is(err, errDown))
	// Output:
	// RETRY_EXHAUSTED: The tool failed after 3 attempts
	// true true
}

func ExampleBackoff_Delay() {
	b := resilience.Backoff{Jitter: resilience.NoJitter}
	for attempt := range 9 {
		fmt.Print(b.Delay(attempt), " ")
	}
	// Output: 500ms 1s 2s 4s 8s 16s 32s 1m0s 1m0s
}

func ExampleBackoff_New() {
	policy := resilience.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}.New()
	attempts := 0
	err := backoff.Retry(func() error {
		if attempts++; attempts < 3 {
			return errors.New("not yet")
		}
		return nil
	}, policy)
	fmt.Println(attempts, err)
	// Output: 3 <nil>
}

func ExampleAsError() {
	err := resilience.AsError("fetch", fmt.Errorf("get http://10.0.0.7: %w", context.DeadlineExceeded))
	fmt.Println(err.Code, err.Retryable, err)
	// Output: TIMEOUT true TIMEOUT: Tool 'fetch' timed out
}

// A tool that wants its own words read by the agent returns an *Error.
func ExampleError() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	_, err := resilience.Do(context.Background(), guard, "read", func(context.Context) (string, error) {
		return "", &resilience.Error{
			Code:       resilience.CodeValidation,
			Message:    "There is no file notes.txt",
			Suggestion: "List the files first.",
		}
	})
	var e *resilience.Error
	if errors.As(err, &e) {
		fmt.Println(e.Message, "-", e.Suggestion)
	}
	// Output: There is no file notes.txt - List the files first.
}

func ExampleClassify() {
	fmt.Println(resilience.Classify(errors.New("anything")))
	fmt.Println(resilience.Classify(resilience.MarkPermanent(errors.New("disk full"))))
	fmt.Println(resilience.Classify(resilience.MarkInvalid(errors.New("no such column"))))
	fmt.Println(resilience.Classify(context.Canceled))
	// Output:
	// transient
	// permanent
	// invalid
	// canceled
}

func ExampleMarkTransient() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"create_issue": {Effect: resilience.NonIdempotent}},
	}))
	r := resilience.Run(context.Background(), guard, "create_issue", func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 0, resilience.MarkTransient(errors.New("queue full: nothing was sent"))
		}
		return 17, nil
	})
	fmt.Println(r.Value, r.Attempts)
	// Output: 17 2
}

func ExampleRedact() {
	fmt.Println(resilience.Redact(map[string]any{
		"query":  "SELECT 1",
		"apiKey": "sk-12345",
		"login":  map[string]any{"user": "ann", "password": "hunter2"},
	}))
	// Output: map[apiKey:[REDACTED] login:map[password:[REDACTED] user:ann] query:SELECT 1]
}
