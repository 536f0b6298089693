package resilience

import "errors"

// Class is what a failure means to the breaker and to retries. The classes that aren't
// counted are neutral: they count neither as a failure nor as a success, and a half-open
// breaker whose probe ends so waits for another probe.
type Class uint8

const (
	ClassTransient Class = iota // the tool failed and another try may help: counted, may be retried
	ClassPermanent              // the tool failed and another try won't help: counted, not retried
	ClassInvalid                // the caller made a mistake: not counted, not retried
	ClassCanceled               // the caller left: not counted, not retried
	ClassNeutral                // the failure says nothing about the backend: not counted, not retried
)

// String returns the class's name in lower case.
func (c Class) String() string {
	switch c {
	case ClassPermanent:
		return "permanent"
	case ClassInvalid:
		return "invalid"
	case ClassCanceled:
		return "canceled"
	case ClassNeutral:
		return "neutral"
	default:
		return "transient"
	}
}

func (c Class) neutral() bool { return c == ClassInvalid || c == ClassCanceled || c == ClassNeutral }

// ErrUnfinished is what a tool returns, wrapped or not, if its call is neither a success nor
// a failure yet: it needs an answer from the user, for example, with which the client will
// call again. The breaker doesn't count such a call, it isn't retried, and observers receive
// it as unfinished, whatever a Classify field says. The caller of a [Guard] finds it with
// errors.Is as the cause of a VALIDATION_ERROR, or of an [*Error] of the tool's own.
var ErrUnfinished = errors.New("resilience: the call isn't finished")

// Classify is the default for every Classify field. It decides by the first of these that
// applies:
//
//   - [ErrUnfinished] is ClassInvalid, since that is neutral;
//   - the outermost mark of [MarkTransient], [MarkBackend], [MarkPermanent], [MarkInvalid] or [MarkNeutral], [*Error]
//     or backoff.Permanent. An Error counts by its code: VALIDATION_ERROR and TOOL_NOT_FOUND are
//     ClassInvalid, CANCELED is ClassCanceled, RETRY_EXHAUSTED is ClassPermanent, TOOL_FAILED, SHUTTING_DOWN
//     and codes of a tool's own are ClassTransient if it is Retryable and ClassPermanent if it isn't, and the
//     others are ClassTransient, but for the CONNECTION_LOST of a closed [Connector], which is ClassPermanent. The
//     error of a guarded call within the tool, or of [AsError], is of the class of that failure if it isn't ClassTransient,
//     whatever its code is; what the breaker of such a call hasn't counted is ClassNeutral, and what it has is
//     ClassPermanent, if that would say otherwise, unless that call only had less time than its tool's timeout; and an
//     error that AsError or [WithRetry] made says nothing if what it wraps is neutral by what follows;
//   - a [*PanicError] or [ErrGoexit] is ClassPermanent, since what crashed once will crash
//     again, whatever the backend has said;
//   - [context.Canceled] is ClassCanceled, but not in a [Guard] whose caller is here, nor from a
//     [BreakerConfig.Probe]: there the tool itself has canceled something, and what follows decides;
//   - trouble of the backend is ClassTransient: what [ReportBackend] or [Transport] has last said of it
//     during the attempt, [context.DeadlineExceeded], a lost connection, a locked SQLite, a hiccup of the
//     operating system (EAGAIN, EINTR, EMFILE, ENFILE, ESTALE), and an error with a method SQLState() string
//     (of the classes 08, 40, 53, 57, 58, but for 08P01, 53400, 57014, 58P01 and 58P02), HTTPStatusCode() int or
//     StatusCode() int (429, and from 500 but for 501 and 505), or GRPCStatus (deadline exceeded, resource
//     exhausted unless a message is too large, internal unless the client couldn't send the request,
//     unavailable, data loss);
//   - an answer that rejects the request is ClassInvalid: any other SQLSTATE (but for 08P01, 53400, 55P03 and 57014,
//     of a request that is garbled, too large, locked out or canceled, which say nothing), HTTP status from 400 (but
//     for 408, 423 and 425, of a request that may be made again as it is) and status of gRPC (but for canceled and
//     unknown), fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, EISDIR and ENOTDIR, and, if there is none of these, the
//     last report;
//   - a failure after a good answer of the backend is ClassNeutral, by the last report;
//   - everything else is ClassTransient, and behind an adapter ClassNeutral, since that is how tools
//     talk to agents: most of it is about mistakes. (A call within such a tool is behind the adapter, too, unless a
//     [ForRequest] of its own says otherwise.) There, a host that doesn't exist, a bare io.ErrUnexpectedEOF (or
//     one of a request of HTTP with a body, unless a Transport knows better), HTTP/2's complaints of a request, a
//     message that can't be sent, a pipe that is closed, a path that is in use (EBUSY, ETXTBSY) and a command that was
//     killed are no evidence of trouble, either: an agent can bring them about.
//
// A deadline of the tool's own counts, since that is how a hang is noticed. A tool that takes a timeout from its agent,
// or waits for what the agent has described, marks the end of that by [MarkNeutral] or [MarkInvalid]. What several calls
// share, as by a singleflight, runs with context.WithoutCancel: the end of the one whose context it has would pass for
// the tool's own in all others.
//
// A [Guard] neither counts nor retries a failure that says no more than TIMEOUT, [context.DeadlineExceeded],
// [os.ErrDeadlineExceeded], gRPC's deadline exceeded or HTTP's 504 in the second half of a call that its caller ends
// before the tool's timeout would: by [Timeout] or MetaTimeout, or by a deadline that is earlier by more than a tenth of
// that timeout. The tool may have told its backend of that end, and either may keep a part of the time.
// BreakerConfig.Classify is asked all the same: Classify returns ClassNeutral for what that receives, and another class
// stands. It isn't retried in any case. An AttemptTimeout isn't meant: that is the tool's own. The same goes for an
// attempt of which the tool has been excused for a tenth, see [Excuse].
//
// A [Guard] neither counts nor retries a CIRCUIT_OPEN, OVERLOADED or SHUTTING_DOWN that the tool got from a
// call of its own: what rejected that call knows when to come back. One that was rejected later, and of which an earlier
// attempt has been counted, counts all the same.
//
// Of errors that are joined, by errors.Join or in a type with a method Unwrap, WrappedErrors or Errors that returns
// []error, those decide that say most, in any order: trouble, an answer that rejects the request, and
// what a program says by a mark or an Error; then the VALIDATION_ERROR that a guard has made of a mistake in a call
// within the tool; then errors of which nothing is known, also as AsError or WithRetry returns them; then such
// rejections, and those of a [Connector]; then what is neutral; and last what the tool itself has canceled. Of several
// that say something on purpose, the first counts. What a call within the tool has counted counts beside any other.
//
// A nil error has no class; Classify returns ClassTransient for it.
func Classify(err error) Class {
	f := factsOf(err)
	return f.byDefault()
}

// byDefault implements Classify.
func (f *facts) byDefault() Class {
	switch {
	case f.has(isUnfinished) && !isCrash(f.err):
		return ClassInvalid
	case f.blamed != nil && f.blamed.inconclusive:
		return ClassNeutral
	case f.counted && (f.neutral || f.meaning().neutral()):
		return ClassPermanent
	case f.neutral:
		return ClassNeutral
	}
	return f.meaning()
}

// meaning is byDefault without a mark of MarkNeutral around what else the error tells, and without what was counted.
func (f *facts) meaning() Class {
	switch {
	case f.derived && (f.blame().neutral() || f.says.neutral()):
		return f.blame()
	case f.said:
		return f.says
	case f.has(isCanceled) && f.blamed == nil && !f.neutral:
		if !f.isTrouble() || f.explicit != nil && f.explicit.saysNothing() {
			return ClassCanceled
		}
	}
	return f.blame()
}

// MarkTransient marks err as a failure that certainly had no effect: it is retried even for
// a tool that isn't idempotent. It returns nil for nil, and otherwise an error with the text
// of err that unwraps to err.
//
// A refused connection, a failed dial, a transaction that was rolled back (the SQLSTATEs 40001 and 40P01)
// and, of a file that can't be opened or executed, a hiccup of the operating system (see [Classify]) or a path that is
// in use (EBUSY, ETXTBSY) count as having had no effect without a mark. A
// tool that did something else before, or that follows a redirect after a POST, overrides that with
// [MarkBackend] or [MarkPermanent]. So does one whose client retries by itself and returns its last error, as go-redis,
// the SDK of AWS, database/sql after driver.ErrBadConn, and net/http with an Idempotency-Key do: an earlier try may
// have had an effect. Better, the client's retries are turned off for such tools. For requests that were reported, see
// [Transport].
//
// What failed in another way, and may have taken effect, is marked by [MarkBackend].
func MarkTransient(err error) error { return mark(err, ClassTransient, true) }

// MarkBackend marks err as a failure of the tool's backend that may have taken effect: the breaker counts
// it, and it is retried if the tool's [Effect] allows that. That is what any error means of which nothing
// is known, but for tools behind an adapter, where it is neutral. It returns nil for nil.
func MarkBackend(err error) error { return mark(err, ClassTransient, false) }

// MarkPermanent marks err as a failure of the tool that another try won't fix: the breaker
// counts it, and it isn't retried. It returns nil for nil.
func MarkPermanent(err error) error { return mark(err, ClassPermanent, false) }

// MarkInvalid marks err as the caller's mistake, which the breaker doesn't count and which
// isn't retried. It returns nil for nil. The agent reads VALIDATION_ERROR without the text of
// err; a tool that wants to explain the mistake returns an [*Error] with CodeValidation and a
// Message.
func MarkInvalid(err error) error { return mark(err, ClassInvalid, false) }

// MarkNeutral marks err as a failure that says nothing about the tool's backend, such as a question that the user
// hasn't answered in time: the breaker doesn't count it, and it isn't retried. Unlike MarkInvalid, it blames nobody:
// of a guard the agent reads what it would of err, and that another try won't help if err tells nothing; behind an
// adapter, where the tool's own answer stands, no guidance is added to that. Nor does it change
// whether err has certainly had no effect. Of joined errors, the others decide. It returns nil for nil.
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

// notMade marks the error of a call that a [Connector] rejected before it had done anything.
// Such a call may be repeated for any tool, and a breaker doesn't count it, since the
// connector itself knows when it will work again.
type notMade struct{ error }

func (n *notMade) Unwrap() error { return n.error }

func (n *notMade) Error() string {
	if n.error == nil { // a Connector that has been closed has lost nothing
		return "the call was not made"
	}
	return n.error.Error()
}

// class returns what e means to the calls around it: its class, but what a breaker has counted is counted.
func (e *Error) class() Class {
	k := e.holds()
	class := e.classWith(k)
	switch {
	case k.outcome == outcomeFailure && class.neutral():
		return ClassPermanent
	case k.outcome == outcomeNeutral && !class.neutral():
		return ClassNeutral
	}
	return class
}

// classWith returns the class of e if k is known of it.
func (e *Error) classWith(k known) Class {
	if k.class != ClassTransient {
		return k.class
	}
	return e.classByCode()
}

func (e *Error) classByCode() Class {
	switch e.Code {
	case CodeValidation, CodeToolNotFound:
		return ClassInvalid
	case CodeCanceled:
		return ClassCanceled
	case CodeRetryExhausted:
		return ClassPermanent
	case CodeConnectionLost:
		if e.first().Err == errClosed {
			return ClassPermanent
		}
		return ClassTransient
	case CodeTimeout, CodeCircuitOpen, CodeOverloaded:
		return ClassTransient
	}

	if e.Retryable {
		return ClassTransient
	}
	return ClassPermanent
}

// classBy returns the class by a Classify field. A crash and ErrUnfinished keep their classes,
// whatever classify says. A nil classify is Classify, and one that panics says nothing.
func (f *facts) classBy(classify func(error) Class) Class {
	if classify == nil || isCrash(f.err) || f.has(isUnfinished) {
		return f.byDefault()
	}

	defer ignorePanic() // then it is ClassTransient, the zero Class
	if f.blamed != nil {
		return classify(f.blamed)
	}
	return classify(f.err)
}

// saysNothing reports whether e is nil, or our CANCELED for a context, and says no more than context.Canceled.
func (e *Error) saysNothing() bool { return e == nil || e.holds().bare }

// isMistake reports whether e is what a guard has said of a call that failed by a mistake, or of which nothing is
// known: no program has chosen its words.
func (e *Error) isMistake() bool {
	return e != nil && e.holds().quiet && (e.class() == ClassInvalid || e.class() == ClassNeutral)
}

// bareCancel reports whether f are those of context.Canceled, and nothing says on purpose what it means. What
// WithTimeout or a guard makes of a context that the tool itself canceled says no more.
func (f *facts) bareCancel() bool { return !f.neutral && !f.said && f.has(isCanceled) }

func (e *Error) isRejection() bool {
	return e.Code == CodeCircuitOpen || e.Code == CodeOverloaded || e.Code == CodeShuttingDown
}

// outcomeBy returns what a failure means to a breaker.
func (f *facts) outcomeBy(classify func(error) Class) outcome {
	unmade := (f.notMade || f.rejected) && !f.counted
	if f.classBy(classify).neutral() || unmade {
		return outcomeNeutral
	}

	return outcomeFailure
}
