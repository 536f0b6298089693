package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seed8d1e2389/resilience"
)

func Example() {
	guard, err := resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{
			"search":       {Effect: resilience.ReadOnly},
			"cypher":       {Effect: resilience.ReadOnly, Tier: resilience.Heavy, Breaker: "neo4j"},
			"create_issue": {Effect: resilience.NonIdempotent},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	search := func(context.Context) (int, error) { return 42, nil }
	hits, err := resilience.Do(ctx, guard, "search", search)
	fmt.Println(hits, err)

	create := func(context.Context) (string, error) {
		return "", errors.New("pq: connection to 10.0.0.7 lost")
	}
	_, err = resilience.Do(ctx, guard, "create_issue", create)

	var e *resilience.Error
	if errors.As(err, &e) {
		fmt.Println(e)
		fmt.Println(e.Suggestion)
	}
	// Output:
	// 42 <nil>
	// TOOL_FAILED: Tool 'create_issue' failed
	// It may have taken effect: check before you call it again.
}

func ExampleNew_wrongConfig() {
	_, err := resilience.New(resilience.Config{
		Timeouts:     resilience.Timeouts{resilience.Quick: -time.Second},
		MaxAbandoned: -1,
	})
	fmt.Println(err)
	// Output:
	// resilience: wrong Config: Timeouts["quick"] is -1s: it must be positive
	// MaxAbandoned is -1: it must not be negative (0 is 64)
}

func ExampleMust() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Timeouts: resilience.Timeouts{resilience.Quick: 20 * time.Second},
	}))

	fmt.Println(guard.Timeout("search"), guard.Timeout("cypher"))
	// Output: 20s 2m0s
}

func ExampleConfigFromEnv() {
	os.Setenv("NOTES_TIMEOUT_QUICK", "45s")
	defer os.Unsetenv("NOTES_TIMEOUT_QUICK")

	cfg, err := resilience.ConfigFromEnv("NOTES")
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg.Effect = resilience.ReadOnly
	guard := resilience.Must(resilience.New(cfg))

	fmt.Println(guard.Timeout("search"))
	// Output: 45s
}

func ExampleDo() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Timeouts: resilience.Timeouts{resilience.Quick: 20 * time.Millisecond},
	}))
	hang := func(context.Context) (string, error) {
		select {} // never returns, whatever its context says
	}

	_, err := resilience.Do(context.Background(), guard, "search", hang)

	fmt.Println(err)
	fmt.Println(errors.Is(err, resilience.CodeTimeout), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// TIMEOUT: Tool 'search' exceeded timeout of 20ms
	// true true
}

func ExampleRun() {
	guard := resilience.Must(resilience.New(resilience.Config{Effect: resilience.ReadOnly}))
	search := func(ctx context.Context) (string, error) {
		if resilience.Attempt(ctx) < 3 {
			return "", errors.New("busy")
		}
		return "found", nil
	}

	r := resilience.Run(context.Background(), guard, "search", search)

	fmt.Println(r.Value, r.Attempts, r.Err == nil)
	// Output: found 3 true
}

func ExampleAll() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	read := func(context.Context) (string, error) { return "text", nil }
	search := func(context.Context) (string, error) { panic("a bug") }

	results := resilience.All(context.Background(), guard,
		resilience.Call[string]{Tool: "read", Func: read},
		resilience.Call[string]{Tool: "search", Func: search},
		resilience.Call[string]{Tool: "nosuch"},
	)

	for _, r := range results {
		if r.Err != nil {
			fmt.Println(r.Tool, r.Err.Code)
			continue
		}
		fmt.Println(r.Tool, r.Value)
	}
	// Output:
	// read text
	// search TOOL_FAILED
	// nosuch TOOL_NOT_FOUND
}

func ExampleWrap() {
	type input struct{ Path string }
	read := func(_ context.Context, in input) (string, error) { return "text of " + in.Path, nil }

	guard := resilience.Must(resilience.New(resilience.Config{}))
	guarded := resilience.Wrap(guard, "read", read)

	text, err := guarded(context.Background(), input{Path: "README.md"})
	fmt.Println(text, err)
	// Output: text of README.md <nil>
}

func ExampleResult_Message() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"highlight": {Effect: resilience.Idempotent}},
		Retry: resilience.Retry{MaxRetries: -1},
		Suggestions: map[resilience.Code]string{
			resilience.CodeConnectionLost: "Ensure the app is running.",
		},
	}))
	highlight := func(context.Context) (bool, error) {
		return false, resilience.ConnectionLostError("the browser tab was closed")
	}

	r := resilience.Run(context.Background(), guard, "highlight", highlight)

	fmt.Println(r.Message())
	// Output: Connection lost: the browser tab was closed. Ensure the app is running.
}

func ExampleArgs() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	search := func(context.Context) (string, error) {
		return "", errors.New("index is corrupt")
	}
	args := map[string]any{"query": "open issues", "apiKey": "sk-12345"}

	r := resilience.Run(context.Background(), guard, "search", search,
		resilience.Args(args), resilience.Debug())

	fmt.Println(r.Err.Details["arguments"])
	fmt.Println(r.Err.Details["cause"])
	// Output:
	// map[apiKey:[REDACTED] query:open issues]
	// index is corrupt
}

func ExampleTimeout() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	search := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}

	_, err := resilience.Do(context.Background(), guard, "search", search,
		resilience.Timeout(10*time.Millisecond))

	fmt.Println(err)
	// A timeout that the caller has shortened is not counted.
	fmt.Println(guard.Health()[0].ConsecutiveFailures)
	// Output:
	// TIMEOUT: Tool 'search' exceeded timeout of 10ms
	// 0
}

func ExampleGuard_Health() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"cypher": {Breaker: "neo4j"}},
	}))
	query := func(context.Context) (string, error) {
		return "", errors.New("no route to database")
	}

	for range 5 {
		_, _ = resilience.Do(context.Background(), guard, "cypher", query)
	}

	for _, h := range guard.Health() {
		fmt.Println(h.Tool, h.Breaker, h.State, h.ConsecutiveFailures, h.LastError.Code)
	}
	// Output: cypher neo4j open 5 TOOL_FAILED
}

func ExampleReportProgress() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{
			"index": {Timeout: time.Second, MaxTimeout: 10 * time.Minute},
		},
	}))
	files := []string{"a.go", "b.go", "c.go"}
	index := func(ctx context.Context) (int, error) {
		for range files {
			// However many files there are, a second for each is enough.
			resilience.ReportProgress(ctx)
		}
		return len(files), nil
	}

	n, err := resilience.Do(context.Background(), guard, "index", index)

	fmt.Println(n, err)
	// Output: 3 <nil>
}

func ExamplePause() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	deleteAll := func(ctx context.Context) (string, error) {
		resume := resilience.Pause(ctx)
		answer := "no" // the answer of a user, however long that takes
		resume()
		return answer, nil
	}

	answer, err := resilience.Do(context.Background(), guard, "delete_all", deleteAll)

	fmt.Println(answer, err)
	// Output: no <nil>
}

func ExampleForRequest() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	search := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	request := resilience.Request{
		RequestInfo: resilience.RequestInfo{
			Method: "tools/call",
			Meta:   map[string]any{resilience.MetaTimeout: 0.01}, // seconds, from the client
		},
		AllowTimeout: true,
	}

	_, err := resilience.Do(context.Background(), guard, "search", search,
		resilience.ForRequest(request))

	fmt.Println(err)
	// Output: TIMEOUT: Tool 'search' exceeded timeout of 10ms
}

// A tool that moves money finishes or rolls back, and the server waits for that before it ends.
func ExampleWaitForTool() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	ctx, shutdown := context.WithCancel(context.Background())
	transfer := func(ctx context.Context) (string, error) {
		shutdown() // after the money has left one account
		<-ctx.Done()
		return "rolled back", nil
	}

	fmt.Println(resilience.Do(ctx, guard, "transfer", transfer, resilience.WaitForTool()))
	// Output: rolled back <nil>
}

func ExampleOnce() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	order := func(context.Context) (string, error) {
		time.Sleep(20 * time.Millisecond) // whatever its context does
		return "ordered at " + time.Now().Format("15:04:05.000"), nil
	}
	once := resilience.Once("order-42")

	_, err := resilience.Do(context.Background(), guard, "order", order, resilience.Timeout(10*time.Millisecond), once)
	fmt.Println(err)
	first := resilience.Run(context.Background(), guard, "order", order, once)
	fmt.Println(first.Joined > 0, first.Message())
	second := resilience.Run(context.Background(), guard, "order", order, once)
	fmt.Println(second.Joined > 0, second.Value != first.Value)
	// Output:
	// TIMEOUT: Tool 'order' exceeded timeout of 10ms
	// true This is the result of the same call made 1 second ago, whose answer you did not receive.
	// false true
}
