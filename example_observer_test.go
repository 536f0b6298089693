package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/seed8d1e2389/resilience"
)

// Every call is logged, and no tool has to do anything for it.
func ExampleLogObserver() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "duration" || a.Key == "retryAfter" {
				return slog.Attr{} // so that the output is the same every time
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
			return 0, resilience.MarkPermanent(errors.New("neo4j died"))
		})
	}
	_ = guard.Flush(ctx)
	// Output:
	// level=WARN msg="call failed" tool=cypher attempts=1 timeout=2m0s code=TOOL_FAILED counted=true error="neo4j died"
	// level=ERROR msg="breaker opened" breaker=cypher from=closed to=open cause=calls
	// level=WARN msg="call failed" tool=cypher attempts=1 timeout=2m0s code=TOOL_FAILED counted=true error="neo4j died"
}

// An observer needs only the functions for the events that it uses.
func ExampleObserver() {
	calls := make(map[string]int) // needs no lock: an observer receives one event at a time
	counts := resilience.Observer{
		End: func(_ context.Context, e resilience.CallEnd) {
			calls[e.Label]++
			fmt.Println(e.Tool, e.Attempts, e.Err)
		},
	}
	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{counts}}))

	ctx := context.Background()
	_, _ = resilience.Do(ctx, guard, "search", func(context.Context) (string, error) {
		return "found", nil
	})
	_ = guard.Flush(ctx)
	fmt.Println(calls)
	// Output:
	// search 1 <nil>
	// map[search:1]
}

// Start adds a value to the context of the call. The tool and the observer's own End receive it. Start must be quick,
// since the call waits for it.
func ExampleObserver_context() {
	type requestID struct{}
	traces := resilience.Observer{
		Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
			return context.WithValue(ctx, requestID{}, "r-1")
		},
		End: func(ctx context.Context, e resilience.CallEnd) {
			fmt.Println("end of", ctx.Value(requestID{}), e.Err)
		},
	}
	guard := resilience.Must(resilience.New(resilience.Config{Observers: []resilience.Observer{traces}}))

	ctx := context.Background()
	_, _ = resilience.Do(ctx, guard, "search", func(ctx context.Context) (string, error) {
		fmt.Println("searching for", ctx.Value(requestID{}))
		return "found", nil
	})
	_ = guard.Flush(ctx)
	// Output:
	// searching for r-1
	// end of r-1 <nil>
}
