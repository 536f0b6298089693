package resilience

import "errors"

// Class is what a failure means to the breaker and to retries.
type Class uint8

const (
	ClassTransient Class = iota // the tool failed and another try may help: counted, unless it was rejected
	ClassPermanent              // the tool failed and another try won't help: counted, not retried
	ClassInvalid                // the caller made a mistake: not counted, not retried
	ClassCanceled               // the caller left: not counted, not retried
	ClassNeutral                // the failure isn't the backend's: not counted, not retried
)

// String returns the class's name in lower case.
func (c Class) String() string {
	return nameOf(c, "transient", "permanent", "invalid", "canceled", "neutral")
}

func (c Class) neutral() bool { return c >= ClassInvalid }

// ErrUnfinished is what a tool returns, wrapped or not, if its call isn't finished yet, but needs an answer from the
// user, for example. Such a call isn't counted or retried, and errors.Is finds ErrUnfinished.
var ErrUnfinished = errors.New("resilience: the call isn't finished")

// Classify returns what an error means; docs/errors.md has a table. In a chain, each of these errors overrides those
// that it wraps:
//
//   - a mark, such as [MarkNoEffect], or backoff.Permanent means its name;
//   - an [*Error] counts by its Code: VALIDATION_ERROR and TOOL_NOT_FOUND are ClassInvalid, CANCELED ClassCanceled,
//     RETRY_EXHAUSTED ClassPermanent; TOOL_FAILED, SHUTTING_DOWN and codes of a tool's own go by Retryable;
//   - a panic is ClassPermanent, [ErrUnfinished] ClassInvalid, [context.Canceled] ClassCanceled;
//   - a type for a rejected request is ClassInvalid, unless it wraps a mark or an *Error.
//
// Anything else is ClassTransient. Of joined errors, the most certain decides.
func Classify(err error) Class {
	m := meaningOf(err)
	return m.countedClass()
}

// MarkNoEffect marks err as a failure that certainly had no effect: it is retried even for a tool that isn't
// idempotent. Nil stays nil. The result of each mark has the text of err and unwraps to err.
//
// A refused connection, a failed dial and a transaction that was rolled back have no effect without a mark. Use
// [MarkBackend] or [MarkPermanent] if the tool did something else before, or if its client retries by itself
// (go-redis).
func MarkNoEffect(err error) error { return mark(err, ClassTransient, true) }

// MarkBackend marks err as a failure of the tool's backend that may have taken effect: counted, and retried if the
// tool's [Effect] allows that. Unknown errors mean the same, except behind an adapter. Nil stays nil.
func MarkBackend(err error) error { return mark(err, ClassTransient, false) }

// MarkPermanent marks err as permanent: counted, not retried. Nil stays nil.
func MarkPermanent(err error) error { return mark(err, ClassPermanent, false) }

// MarkInvalid marks err as the caller's mistake: not counted, not retried. The agent reads VALIDATION_ERROR without the
// text of err; to explain the mistake, return an [*Error] with CodeValidation instead. Nil stays nil.
func MarkInvalid(err error) error { return mark(err, ClassInvalid, false) }

// MarkNeutral marks err as a failure that isn't the backend's, such as a question that the user hasn't answered in
// time: not counted, not retried. Nil stays nil. Behind an adapter the tool's own answer gets no guidance.
func MarkNeutral(err error) error { return mark(err, ClassNeutral, false) }

type marked struct {
	error
	class    Class
	noEffect bool // certainly
}

func (m *marked) Unwrap() error { return m.error }

func mark(err error, c Class, noEffect bool) error {
	if err == nil {
		return nil
	}
	return &marked{err, c, noEffect}
}

// notMade marks the error of a call that a [Connector] rejected before it had done anything. Such a call may be
// repeated for any tool. A breaker doesn't count it, because the connector decides when it will work again.
type notMade struct{ error }

func (n *notMade) Unwrap() error { return n.error }

// repeated marks the last error of several attempts if an earlier one may have had an effect, even though the last one
// had none.
type repeated struct{ error }

func (r *repeated) Unwrap() error { return r.error }
