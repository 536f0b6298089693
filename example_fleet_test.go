package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// A board is the simplest Fleet: one failure opens the breaker of all members, in one process.
type board struct {
	mu      sync.Mutex
	members []*resilience.FleetMember
}

func (b *board) Report(results []resilience.FleetResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range results {
		change := resilience.FleetChange{Breaker: r.Breaker.ID, Time: time.Now(), Cause: r.Cause}
		if !r.Success {
			change.State, change.RetryAfter = resilience.StateOpen, r.Breaker.Config.Cooldown
		}
		for _, m := range b.members {
			m.Apply(change)
		}
	}
}

// Lease lets each member probe when it likes.
func (b *board) Lease(context.Context, resilience.FleetBreaker, resilience.Cause) (bool, time.Duration) {
	return true, 0
}

func ExampleGuard_JoinFleet() {
	var fleet board
	var guards []*resilience.Guard
	for range 2 {
		guard := resilience.Must(resilience.New(resilience.Config{
			Tools: map[string]resilience.Tool{"search": {Retry: &resilience.Retry{MaxRetries: -1}}},
		}))
		member, err := guard.JoinFleet("board", &fleet)
		if err != nil {
			panic(err)
		}
		fleet.members = append(fleet.members, member)
		guards = append(guards, guard)
	}

	ctx := context.Background()
	_, err := resilience.Do(ctx, guards[0], "search", func(context.Context) (string, error) {
		return "", errors.New("connection refused")
	})
	fmt.Println("the first server:", err)

	for _, m := range fleet.members {
		_ = m.Leave(ctx) // which waits until the fleet has heard of the failure
	}
	_, err = resilience.Do(ctx, guards[1], "search", func(context.Context) (string, error) { return "found", nil })
	fmt.Println("the second server:", err)
	// Output:
	// the first server: TOOL_FAILED: Tool 'search' failed
	// the second server: CIRCUIT_OPEN: Circuit breaker open due to repeated failures. Calls are rejected for 30 more seconds.
}
