package resilience

import (
	"fmt"
	"reflect"
)

// Effect is what running a tool twice may do, after MCP's tool annotations. It decides whether a call that may have
// taken effect is retried.
type Effect uint8

const (
	EffectUnknown Effect = iota // retried only after a failure that certainly had no effect
	ReadOnly                    // changes nothing (readOnlyHint): retried
	Idempotent                  // may be repeated without harm (idempotentHint): retried
	NonIdempotent               // must not be repeated: retried like EffectUnknown, and agents are told not to
)

// String returns the effect's name.
func (e Effect) String() string {
	return nameOf(e, "unknown", "read-only", "idempotent", "non-idempotent")
}

// nameOf returns the name of a constant, of which there are these from zero on.
func nameOf[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", reflect.TypeFor[T]().Name(), uint8(v))
}

// EffectFromHints returns the effect that MCP's annotations readOnlyHint and idempotentHint mean. If both are false,
// that is NonIdempotent.
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

// repeatable reports whether a tool of this effect may run again, whatever an earlier run has done.
func (e Effect) repeatable() bool { return e == ReadOnly || e == Idempotent }
