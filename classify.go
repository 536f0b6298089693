package resilience

import "errors"

// Class is what a failure means to the breaker and to retries. The classes that aren't
// counted are neutral: they count neither as a failure nor as a success, and a half-open
// breaker whose probe ends so waits for another probe.
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

// ErrUnfinished is what a tool returns, wrapped or not, if its call is neither a success nor a
// failure yet: it needs an answer from the user, for example, with which the client will call
// again. The breaker doesn't count such a call, it isn't retried, and observers receive it as
// unfinished, even if Config.Classify disagrees. The caller of a [Guard] finds it with errors.Is
// as the cause of a VALIDATION_ERROR, or of an [*Error] of the tool's own.
var ErrUnfinished = errors.New("resilience: the call isn't finished")

// Classify returns what an error means. docs/errors.md has a table of all errors that it recognizes. In a chain, each
// such error overrides the errors that it wraps:
//
//   - a mark ([MarkNoEffect] and its neighbors) or backoff.Permanent means its name;
//   - an [*Error] counts by its Code: VALIDATION_ERROR and TOOL_NOT_FOUND are ClassInvalid, CANCELED is ClassCanceled,
//     RETRY_EXHAUSTED is ClassPermanent, TOOL_FAILED, SHUTTING_DOWN and codes of a tool's own go by Retryable, and the
//     others are ClassTransient;
//   - a panic is ClassPermanent, [ErrUnfinished] ClassInvalid, [context.Canceled] ClassCanceled;
//   - unless a mark or an *Error is within them, the types for trouble of the backend are ClassTransient, and the types
//     for a rejected request are ClassInvalid.
//
// Of joined errors the first of the highest rank decides: a mark or *Error, trouble, a rejected request, unknown
// errors, calls that weren't made, canceled or neutral ones. Any other error is ClassTransient, and so is nil. A
// [Guard] has more evidence, see Request.Unexplained.
func Classify(err error) Class {
	m := meaningOf(err)
	return m.countedClass()
}

// MarkNoEffect marks err as a failure that certainly had no effect: it is retried even for a tool that isn't
// idempotent. It returns nil for nil, and otherwise an error with the text of err that unwraps to err.
//
// A refused connection, a failed dial and a transaction that was rolled back (the SQLSTATEs 40001 and 40P01) have no
// effect without a mark. A tool overrides that with [MarkBackend] or [MarkPermanent] if it did something else before,
// or if its client retries by itself and returns only its last error. Such clients are go-redis, the AWS SDK,
// database/sql after driver.ErrBadConn, and net/http with an Idempotency-Key.
func MarkNoEffect(err error) error { return mark(err, ClassTransient, true) }

// MarkBackend marks err as a failure of the tool's backend that may have taken effect: the breaker counts it, and it is
// retried if the tool's [Effect] allows that. An unknown error means the same without a mark, except behind an adapter,
// where it is neutral. It returns nil for nil.
func MarkBackend(err error) error { return mark(err, ClassTransient, false) }

// MarkPermanent marks err as a failure of the tool that another try won't fix: the breaker counts it, and it isn't
// retried. It returns nil for nil.
func MarkPermanent(err error) error { return mark(err, ClassPermanent, false) }

// MarkInvalid marks err as the caller's mistake: the breaker doesn't count it, and it isn't retried. The agent reads
// VALIDATION_ERROR without the text of err. A tool that wants to explain the mistake returns an [*Error] with
// CodeValidation and a Message. It returns nil for nil.
func MarkInvalid(err error) error { return mark(err, ClassInvalid, false) }

// MarkNeutral marks err as a failure that isn't the backend's, such as a question that the user hasn't answered in
// time: the breaker doesn't count it, and it isn't retried. The agent reads the same as without the mark; behind
// an adapter no guidance is added to the tool's own answer. Whether err certainly had no effect stays as it is,
// and of joined errors the others decide. It returns nil for nil.
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
