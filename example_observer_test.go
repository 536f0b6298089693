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
	for range 3 {
		_, _ = resilience.Do(ctx, guard, "cypher", func(context.Context) (int, error) {
			return 0, resilience.MarkPermanent(errors.New("neo4j is gone"))
		})
	}
	_ = guard.Flush(ctx)
	// Output:
	// level=WARN msg="call failed" tool=cypher attempts=1 timeout=2m0s code=TOOL_FAILED error="neo4j is gone"
	// level=ERROR msg="breaker opened" breaker=cypher from=closed to=open
	// level=WARN msg="call failed" tool=cypher attempts=1 timeout=2m0s code=TOOL_FAILED error="neo4j is gone"
	// level=WARN msg="call failed" tool=cypher attempts=0 timeout=2m0s code=CIRCUIT_OPEN error="Circuit breaker open due to repeated failures. Will retry in 30 seconds."
}

// An observer needs only the functions that it cares for.
func ExampleObserver() {
	type requestID struct{}
	calls := make(map[string]int) // needs no lock: an observer is told one thing at a time
	counts := resilience.Observer{
		Start: func(ctx context.Context, e resilience.CallStart) context.Context {
			return context.WithValue(ctx, requestID{}, "r-1") // the tool sees it, and so does End
		},
		End: func(ctx context.Context, e resilience.CallEnd) {
			calls[e.Label]++
			fmt.Println(ctx.Value(requestID{}), e.Tool, e.Attempts, e.Err)
		},
	}
	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{counts}}))
	ctx := context.Background()
	_, _ = resilience.Do(ctx, guard, "search", func(ctx context.Context) (string, error) {
		fmt.Println("searching for", ctx.Value(requestID{}))
		return "found", nil
	})
	_ = guard.Flush(ctx)
	fmt.Println(calls)
	// Output:
	// searching for r-1
	// r-1 search 1 <nil>
	// map[search:1]
}
