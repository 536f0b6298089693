package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/seed8d1e2389/resilience"
)

// Every call is logged, without a line of glue around the tools.
func ExampleLogObserver() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "duration" || a.Key == "retryAfter" {
				return slog.Attr{} // to have the same output every time
			}
			return a
		},
	}))
	guard := resilience.Must(resilience.New(resilience.Config{
		Observers: []resilience.Observer{resilience.LogObserver(log)},
		Breaker:   resilience.BreakerConfig{Failures: 2},
	}))
	ctx := context.Background()
	for range 2 {
		_, _ = resilience.Do(ctx, guard, "cypher", func(context.Context) (int, error) {
			return 0, resilience.MarkPermanent(errors.New("neo4j is gone"))
		})
	}
	_ = guard.Flush(ctx)
	// Output:
	// level=WARN msg="call failed" tool=cypher attempts=1 limit=2m0s code=TOOL_FAILED error="neo4j is gone"
	// level=ERROR msg="breaker opened" breaker=cypher from=closed to=open
	// level=WARN msg="call failed" tool=cypher attempts=1 limit=2m0s code=TOOL_FAILED error="neo4j is gone"
}

// An observer needs only the functions that it cares for.
func ExampleObserver() {
	calls := make(map[string]int) // needs no lock: an observer is told one thing at a time
	counts := resilience.Observer{
		End: func(_ context.Context, e resilience.CallEnd) {
			calls[e.Label]++
			fmt.Println(e.Tool, e.Attempts, e.Err)
		},
	}
	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{counts}}))
	ctx := context.Background()
	_, _ = resilience.Do(ctx, guard, "search", func(context.Context) (string, error) { return "found", nil })
	_ = guard.Flush(ctx)
	fmt.Println(calls)
	// Output:
	// search 1 <nil>
	// map[search:1]
}

// What Start adds to the context reaches the tool, and the observer's other functions.
//
// This example is compiled but not run: a busy machine may take longer than the 100ms that
// a call waits for Start.
func ExampleObserver_start() {
	type requestID struct{}
	ids := resilience.Observer{
		Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			return context.WithValue(ctx, requestID{}, "r-1")
		},
		End: func(ctx context.Context, e resilience.CallEnd) {
			fmt.Println(e.Tool, "ended", ctx.Value(requestID{}))
		},
	}
	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{ids}}))
	_, _ = resilience.Do(context.Background(), guard, "search", func(ctx context.Context) (string, error) {
		fmt.Println("searching for", ctx.Value(requestID{}))
		return "found", nil
	})
}
