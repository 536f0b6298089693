// Package property compares the library with models that are too simple to be wrong.
package property

import (
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// checkInBubble checks a property, each time in a synctest bubble of its own. The goroutine on
// which rapid calls it is outside of the bubble, so a failure is passed on by a panic.
func checkInBubble(t *testing.T, property func(*rapid.T)) {
	rapid.Check(t, func(r *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			property(r)
		})

		switch {
		case failure == nil:
		case fmt.Sprintf("%T", failure) == "rapid.invalidData":
			panic(failure) // apart from failures: while it looks for the simplest one, rapid goes by the line
		default:
			panic(failure)
		}
	})
}
