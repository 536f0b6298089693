package resilience_test

import (
	"context"
	"encoding/json"
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

	hits, err := resilience.Do(context.Background(), guard, "search", func(context.Context) (int, error) {
		return 42, nil
	})
	fmt.Println(hits, err)

	_, err = resilience.Do(context.Background(), guard, "create_issue", func(context.Context) (string, error) {
		return "", errors.New("pq: connection to 10.0.0.7 lost")
	})
	answer, _ := json.MarshalIndent(err, "", "  ")
	fmt.Println(string(answer))
	// Output:
	// 42 <nil>
	// {
	//   "code": "TOOL_FAILED",
	//   "tool": "create_issue",
	//   "message": "Tool 'create_issue' failed",
	//   "suggestion": "The outcome of this call is unknown: check whether it took effect before you call this tool again.",
	//   "retryable": false
	// }
}

func ExampleNew_wrongConfig() {
	_, err := resilience.New(resilience.Config{
		Tools:        map[string]resilience.Tool{"search": {Timeout: -time.Second}},
		MaxAbandoned: -1,
	})
	fmt.Println(err)
	// Output:
	// resilience: wrong Config: Tools["search"].Timeout is -1s: it must not be negative (0 is the tier's)
	// MaxAbandoned is -1: it must not be negative (0 is 64)
}

func ExampleMust() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Timeouts: map[resilience.Tier]time.Duration{resilience.Quick: 20 * time.Second},
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
		Timeouts: map[resilience.Tier]time.Duration{resilience.Quick: 20 * time.Millisecond},
	}))
	_, err := resilience.Do(context.Background(), guard, "search", func(context.Context) (string, error) {
		select {} // never returns, whatever its context says
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, resilience.CodeTimeout), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// TIMEOUT: Tool 'search' exceeded timeout of 20ms
	// true true
}

func ExampleRun() {
	guard := resilience.Must(resilience.New(resilience.Config{Effect: resilience.ReadOnly}))
	r := resilience.Run(context.Background(), guard, "search", func(ctx context.Context) (string, error) {
		if resilience.Attempt(ctx) < 3 {
			return "", errors.New("busy")
		}
		return "found", nil
	})
	fmt.Println(r.Value, r.Attempts, r.Err == nil)
	// Output: found 3 true
}

func ExampleAll() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	results := resilience.All(context.Background(), guard,
		resilience.Call[string]{Tool: "read", Func: func(context.Context) (string, error) { return "text", nil }},
		resilience.Call[string]{Tool: "search", Func: func(context.Context) (string, error) { panic("a bug") }},
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
		Suggestions: map[resilience.Code]string{resilience.CodeConnectionLost: "Ensure the app is running in your browser."},
	}))
	r := resilience.Run(context.Background(), guard, "highlight", func(context.Context) (bool, error) {
		return false, resilience.ConnectionLostError("the browser tab was closed")
	})
	fmt.Println(r.Message())
	// Output: Connection lost: the browser tab was closed. Ensure the app is running in your browser.
}

func ExampleArgs() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	args := map[string]any{"query": "open issues", "apiKey": "sk-12345"}
	r := resilience.Run(context.Background(), guard, "search", func(context.Context) (string, error) {
		return "", errors.New("index is corrupt")
	}, resilience.Args(args), resilience.Debug())
	fmt.Println(r.Err.Details["arguments"], r.Err.Details["cause"])
	// Output: map[apiKey:[REDACTED] query:open issues] index is corrupt
}

func ExampleLimit() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	_, err := resilience.Do(context.Background(), guard, "search", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}, resilience.Limit(10*time.Millisecond))
	fmt.Println(err)
	fmt.Println(guard.Health()[0].ConsecutiveFailures) // an impatient caller is not the tool's failure
	// Output:
	// TIMEOUT: Tool 'search' exceeded timeout of 10ms
	// 0
}

func ExampleGuard_Health() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"cypher": {Breaker: "neo4j"}},
	}))
	for range 5 {
		_, _ = resilience.Do(context.Background(), guard, "cypher", func(context.Context) (string, error) {
			return "", errors.New("no route to database")
		})
	}
	for _, h := range guard.Health() {
		fmt.Println(h.Tool, h.Breaker, h.State, h.ConsecutiveFailures, h.LastError.Code)
	}
	// Output: cypher neo4j open 5 TOOL_FAILED
}

func ExampleProgress() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{
			"index": {Timeout: time.Minute, MaxTimeout: 10 * time.Hour},
		},
	}))
	files := []string{"a.go", "b.go", "c.go"}
	n, err := resilience.Do(context.Background(), guard, "index", func(ctx context.Context) (int, error) {
		for range files {
			// However many there are: a minute for each is enough.
			resilience.Progress(ctx)
		}
		return len(files), nil
	})
	fmt.Println(n, err)
	// Output: 3 <nil>
}

func ExamplePause() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	answer, err := resilience.Do(context.Background(), guard, "delete_all", func(ctx context.Context) (string, error) {
		resume := resilience.Pause(ctx)
		answer := "no" // ask the user here, however long that takes
		resume()
		return answer, nil
	})
	fmt.Println(answer, err)
	// Output: no <nil>
}

func ExampleMetaOptions() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	meta := map[string]any{resilience.MetaLimit: 0.01} // of a tools/call request
	opts, err := resilience.MetaOptions(meta, false, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = resilience.Do(context.Background(), guard, "search", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}, opts...)
	fmt.Println(err)
	// Output: TIMEOUT: Tool 'search' exceeded timeout of 10ms
}
