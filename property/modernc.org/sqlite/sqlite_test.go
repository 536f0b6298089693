package sqlite

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed8d1e2389/resilience"
)

// A locked database is trouble, and what else SQLite says isn't known.
func TestLockedDatabaseIsTrouble(t *testing.T) {
	neutral := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	for code, trouble := range map[int]bool{
		5: true, 6: true, 5 | 2<<8: true, // SQLITE_BUSY, SQLITE_LOCKED, SQLITE_BUSY_SNAPSHOT
		1: false, 19: false, 14: false,
	} {
		modern, failures := Error(code), []error{CgoError{ErrNo(code)}}
		failures = append(failures, &modern)
		if code < 256 {
			failures = append(failures, WasmError(code))
		}
		for _, err := range failures {
			g := resilience.Must(resilience.New(resilience.Config{Retry: resilience.Retry{MaxRetries: -1}}))
			resilience.Run(t.Context(), g, "x", func(context.Context) (int, error) {
				return 0, fmt.Errorf("insert: %w", err)
			}, neutral)
			if counted := g.Health()[0].ConsecutiveFailures == 1; counted != trouble {
				t.Errorf("%T with the code %d: counted is %t", err, code, counted)
			}
		}
	}
}
