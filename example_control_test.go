package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// The breaker closes as soon as the backend answers, without a call.
func ExampleProbeURL() {
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // it is well again
	defer backend.Close()
	closed := make(chan resilience.BreakerChange, 1)
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools: map[string]resilience.Tool{"search": {Retry: &resilience.Retry{MaxRetries: -1}}},
		Breakers: map[string]resilience.BreakerConfig{"search": {
			Failures:      1,
			Probe:         resilience.ProbeURL(backend.URL, nil),
			ProbeInterval: 10 * time.Millisecond,
		}},
		Observers: []resilience.Observer{{Breaker: func(e resilience.BreakerChange) {
			if e.To == resilience.StateClosed {
				closed <- e
			}
		}}},
	}))

	_, err := resilience.Do(context.Background(), guard, "search", func(context.Context) (string, error) {
		return "", errors.New("connection reset")
	})
	fmt.Println(err)
	e := <-closed
	fmt.Println(e.From, "to", e.To, "by", e.Cause)
	// Output:
	// TOOL_FAILED: Tool 'search' failed
	// open to closed by probe
}

func ExampleBreaker_Isolate() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	search := func(context.Context) (string, error) { return "found", nil }

	guard.Breaker("search").Isolate("maintenance until 14:00")
	_, err := resilience.Do(context.Background(), guard, "search", search)
	fmt.Println(err)

	guard.Breaker("search").Reset()
	found, _ := resilience.Do(context.Background(), guard, "search", search)
	fmt.Println(found)
	// Output:
	// CIRCUIT_OPEN: 'search' is taken out of service: maintenance until 14:00
	// found
}

func ExampleBreaker_Trip() {
	breaker := resilience.NewBreaker("db", resilience.BreakerConfig{})

	breaker.Trip(time.Hour) // another server has seen that the backend is dead

	fmt.Println(breaker.State())
	// Output: open
}

func ExampleBreakerKey() {
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools:   map[string]resilience.Tool{"query": {}},
		Breaker: resilience.BreakerConfig{Failures: 1},
		Retry:   resilience.Retry{MaxRetries: -1},
	}))
	query := func(source string) error {
		_, err := resilience.Do(context.Background(), guard, "query", func(context.Context) (string, error) {
			if source == "loki" {
				return "", errors.New("no route to host")
			}
			return "42 lines", nil
		}, resilience.BreakerKey(source))
		return err
	}

	fmt.Println(query("loki"))
	fmt.Println(resilience.AsError("query", query("loki")).Code)
	fmt.Println(query("tempo"))
	// Output:
	// TOOL_FAILED: Tool 'query' failed
	// CIRCUIT_OPEN
	// <nil>
}

func ExampleGuard_Close() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	inFlight, err := guard.Close(ctx)
	fmt.Println(inFlight, err)

	_, err = resilience.Do(ctx, guard, "search", func(context.Context) (string, error) { return "", nil })
	fmt.Println(err)
	// Output:
	// 0 <nil>
	// SHUTTING_DOWN: The server is shutting down
}

func ExampleBeginRequest() {
	guard := resilience.Must(resilience.New(resilience.Config{}))
	publish := func(ctx context.Context) error {
		end := resilience.BeginRequest(ctx) // from now on, the call isn't retried blindly
		err := errors.New("the broker has closed the connection")
		end(err)
		return err
	}

	r := resilience.Run(context.Background(), guard, "publish", func(ctx context.Context) (string, error) {
		return "", publish(ctx)
	})
	fmt.Println(r.Attempts)
	// Output: 1
}
