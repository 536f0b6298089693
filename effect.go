package resilience

import (
	"fmt"
	"time"
)

// Effect is what running a tool twice may do, after MCP's tool annotations. It decides
// whether a call is retried after a failure that leaves open whether the tool took effect.
type Effect uint8

const (
	EffectUnknown Effect = iota // retried only after a failure that certainly had no effect
	ReadOnly                    // changes nothing (readOnlyHint): retried
	Idempotent                  // may be repeated without harm (idempotentHint): retried
	NonIdempotent               // must not be repeated: like EffectUnknown, and the agent is asked to check first
)

// String returns the effect's name.
func (e Effect) String() string {
	switch e {
	case EffectUnknown:
		return "unknown"
	case ReadOnly:
		return "read-only"
	case Idempotent:
		return "idempotent"
	case NonIdempotent:
		return "non-idempotent"
	}
	return fmt.Sprintf("Effect(%d)", uint8(e))
}

// EffectFromHints returns the effect of a tool with MCP's annotations readOnlyHint and
// idempotentHint. Both are false by default, which means NonIdempotent.
func EffectFromHints(readOnly, idempotent bool) Effect {
	switch {
	case readOnly:
		return ReadOnly
	case idempotent:
		return Idempotent
	default:
		return NonIdempotent
	}
}

// repeatable reports whether a tool of this effect may run again, whatever the run before
// has done.
func (e Effect) repeatable() bool { return e == ReadOnly || e == Idempotent }

// ask calls a function of a [Request]. It returns the zero value, which says nothing, if f panics.
func ask[T any](f func(time.Duration) T, limit time.Duration) (answer T) {
	defer func() {
		if recover() != nil {
			var nothing T
			answer = nothing
		}
	}()

	return f(limit)
}
