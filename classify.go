package resilience

import (
	"context"
	"errors"

	"github.com/cenkalti/backoff/v4"
)

// Class says what a failure means for the breaker and for retries. Neutral
// classes count neither as a failure nor as a success, and a half-open
// breaker's probe that ends so gives its slot back.
type Class uint8

const (
	Transient Class = iota // the tool failed; another try may help   counts · may be retried
	Permanent              // the tool failed; another try won't      counts · not retried
	Invalid                // the caller's mistake                    neutral · not retried
	Canceled               // the caller went away                    neutral · not retried
)

// ErrUnfinished is what a tool returns, wrapped or not, to say that its call is neither a
// success nor a failure yet: it asks its user something, say, and the client will call
// again with the answer. The breaker doesn't count it, nothing is retried, and observers
// are told so. For the caller of a [Guard] it is the cause of a VALIDATION_ERROR, to be
// looked for with errors.Is.
var ErrUnfinished = errors.New("resilience: the call isn't finished")

// notMade is in the chain of an error for a call that was turned away before it had done
// anything, by a [Connector], which knows by itself when it will work again. It may be
// repeated for any tool, and a breaker doesn't count it.
type notMade struct{ error }

func (n *notMade) Unwrap() error { return n.error }

func wasNotMade(err error) (yes bool) {
	defer func() {
		if recover() != nil { // err is a tool's
			yes = false
		}
	}()
	var n *notMade
	return !crash(err) && errors.As(err, &n)
}

// String returns the class's name in lower case.
func (c Class) String() string {
	switch c {
	case Permanent:
		return "permanent"
	case Invalid:
		return "invalid"
	case Canceled:
		return "canceled"
	default:
		return "transient"
	}
}

func (c Class) neutral() bool { return c == Invalid || c == Canceled }

// Classify is the default for every Classify field. It takes, in this order:
//
//   - the outermost mark of [MarkTransient], [MarkPermanent] or [MarkInvalid],
//     [*Error] or backoff.Permanent. An Error counts by its code: VALIDATION_ERROR
//     and TOOL_NOT_FOUND are Invalid, CANCELED is Canceled, RETRY_EXHAUSTED is
//     Permanent, TOOL_FAILED is Transient if it is Retryable and Permanent if not,
//     the others are Transient;
//   - a [*PanicError] or [ErrGoexit]: Permanent, what crashed once will crash again;
//   - [ErrUnfinished]: Invalid, which is neutral too;
//   - [context.Canceled]: Canceled;
//   - everything else, [context.DeadlineExceeded] and lost connections among it:
//     Transient.
//
// A nil error has no class; Classify returns Transient for it.
func Classify(err error) Class {
	if c, ok := explicitClass(err); ok {
		return c
	}
	switch {
	case errors.Is(err, ErrUnfinished):
		return Invalid
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Transient
}

// MarkTransient marks err as a failure that certainly had no effect: it is
// retried even for a tool that isn't idempotent. It returns nil for nil, and an
// error with err's text otherwise, which unwraps to err.
//
// A refused connection and a failed dial count as having had no effect without a mark.
// A tool that did something else before it dialled, or follows a redirect after a
// POST, says otherwise with [MarkPermanent].
func MarkTransient(err error) error { return mark(err, Transient) }

// MarkPermanent marks err as a failure of the tool that another try won't mend:
// the breaker counts it, and it isn't retried. It returns nil for nil.
func MarkPermanent(err error) error { return mark(err, Permanent) }

// MarkInvalid marks err as the caller's mistake, which the breaker doesn't count
// and which isn't retried. It returns nil for nil. The agent sees
// VALIDATION_ERROR without err's text; to tell it what is wrong, return an
// [*Error] with CodeValidation and a Message.
func MarkInvalid(err error) error { return mark(err, Invalid) }

type marked struct {
	error
	class Class
}

func (m *marked) Unwrap() error { return m.error }

func mark(err error, c Class) error {
	if err == nil {
		return nil
	}
	return &marked{err, c}
}

// explicitClass looks for what a program said on purpose, from the outside in.
func explicitClass(err error) (Class, bool) {
	switch x := err.(type) {
	case *marked:
		return x.class, true
	case *Error:
		return x.class(), true
	case *backoff.PermanentError, *PanicError:
		return Permanent, true
	}
	if err == ErrGoexit {
		return Permanent, true
	}
	for _, inner := range unwrap(err) {
		if c, ok := explicitClass(inner); ok {
			return c, true
		}
	}
	return 0, false
}

func (e *Error) class() Class {
	switch e.Code {
	case CodeValidation, CodeToolNotFound:
		return Invalid
	case CodeCanceled:
		return Canceled
	case CodeRetryExhausted:
		return Permanent
	case CodeTimeout, CodeCircuitOpen, CodeConnectionLost, CodeOverloaded:
		return Transient
	}
	if e.Retryable {
		return Transient
	}
	return Permanent
}
