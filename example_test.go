package resilience_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
)

func ExampleWithTimeout() {
	search := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}

	_, err := resilience.WithTimeout(context.Background(), "search", 10*time.Millisecond, search)

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
	err = errors.New("no route to host") // make the call here
	done(err)

	fmt.Println(breaker.State())
	// Output: closed
}

func ExampleWithRetry() {
	query := func(ctx context.Context) (string, error) {
		if n := resilience.Attempt(ctx); n < 3 {
			return "", fmt.Errorf("attempt %d failed", n)
		}
		return "done", nil
	}

	value, err := resilience.WithRetry(context.Background(), resilience.Retry{MaxRetries: 5}, query)

	fmt.Println(value, err)
	// Output: done <nil>
}

func ExampleWithRetry_exhausted() {
	errDown := errors.New("down")
	query := func(context.Context) (string, error) { return "", errDown }
	retry := resilience.Retry{MaxRetries: 2, Backoff: resilience.Backoff{Base: time.Millisecond}}

	_, err := resilience.WithRetry(context.Background(), retry, query)

	fmt.Println(err)
	fmt.Println(errors.Is(err, resilience.CodeRetryExhausted), errors.Is(err, errDown))
	// Output:
	// RETRY_EXHAUSTED: The tool failed after 3 attempts
	// true true
}

func ExampleBackoff_Delay() {
	delays := resilience.Backoff{Jitter: resilience.NoJitter}

	for attempt := range 9 {
		fmt.Print(delays.Delay(attempt), " ")
	}
	// Output: 500ms 1s 2s 4s 8s 16s 32s 1m0s 1m0s
}

func ExampleBackoff_Policy() {
	policy := resilience.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}.Policy()
	attempts := 0
	operation := func() error {
		attempts++
		if attempts < 3 {
			return errors.New("not yet")
		}
		return nil
	}

	err := backoff.Retry(operation, policy)

	fmt.Println(attempts, err)
	// Output: 3 <nil>
}

func ExampleAsError() {
	err := fmt.Errorf("get http://10.0.0.7: %w", context.DeadlineExceeded)

	e := resilience.AsError("fetch", err)

	fmt.Println(e.Code, e.Retryable)
	fmt.Println(e.Message)
	// Output:
	// TIMEOUT true
	// Tool 'fetch' timed out
}

// A tool returns an *Error to choose what the agent reads.
func ExampleError() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	read := func(context.Context) (string, error) {
		return "", &resilience.Error{
			Code:       resilience.CodeValidation,
			Message:    "There is no file notes.txt",
			Suggestion: "List the files first.",
		}
	}

	_, err := resilience.Do(context.Background(), guard, "read", read)

	answer, _ := json.MarshalIndent(err, "", "  ")
	fmt.Println(string(answer))
	// Output:
	// {
	//   "code": "VALIDATION_ERROR",
	//   "tool": "read",
	//   "message": "There is no file notes.txt",
	//   "suggestion": "List the files first.",
	//   "retryable": false
	// }
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

func ExampleMarkNeutral() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"book": {}},
	}))
	_, err := resilience.Do(context.Background(), guard, "book", func(ctx context.Context) (string, error) {
		return "", resilience.MarkNeutral(errors.New("the user hasn't chosen a seat"))
	})
	fmt.Println(err)
	fmt.Println("failures:", guard.Breaker("book").Failures())
	// Output:
	// TOOL_FAILED: Tool 'book' failed
	// failures: 0
}

func ExampleMarkNoEffect() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"create_issue": {Effect: resilience.NonIdempotent}},
	}))
	create := func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 0, resilience.MarkNoEffect(errors.New("queue full: nothing was sent"))
		}
		return 17, nil
	}

	r := resilience.Run(context.Background(), guard, "create_issue", create)

	fmt.Println(r.Value, r.Attempts)
	// Output: 17 2
}

func ExampleRedact() {
	args := map[string]any{
		"query":  "SELECT 1",
		"apiKey": "sk-12345",
		"login":  map[string]any{"user": "ann", "password": "hunter2"},
	}

	fmt.Println(resilience.Redact(args))
	// Output: map[apiKey:[REDACTED] login:map[password:[REDACTED] user:ann] query:SELECT 1]
}

func ExampleScrub() {
	err := errors.New(`Get "https://app:hunter2@db.internal:8443/x?page=2&token=abc": connection refused`)

	fmt.Println(resilience.Scrub(err.Error()))
	// Output: Get "https://[REDACTED]@db.internal:8443/x?page=2&token=[REDACTED]": connection refused
}
