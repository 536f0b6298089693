package resilience

import (
	"context"
	"maps"
	"time"
)

// AsError turns any error into a new [*Error] for the named tool, around err. It returns nil for
// nil. An *Error in err's chain decides by its own fields, including Details; only its empty
// fields are filled in. Any other error becomes TIMEOUT (a context.DeadlineExceeded),
// CONNECTION_LOST, CANCELED, VALIDATION_ERROR ([MarkInvalid]) or TOOL_FAILED, with a message
// that contains none of its text.
func AsError(tool string, err error) *Error {
	if err == nil {
		return nil
	}

	t := treeOf(err)
	e := diagnose(t, nil).toError(tool, t.readable())
	if e == err {
		e = e.clone() // the original may be a variable of the program's
	}
	e.Details = maps.Clone(e.Details)
	return e
}

// A diagnosis is all that is known of an error that a tool returned.
type diagnosis struct {
	class      Class
	explicit   *Error // the outermost *Error in the chain, nil if there is none
	marked     bool   // the program has said what it means
	final      bool   // the program has marked it so, outside of any *Error
	code       Code   // what the error becomes without an explicit one
	lost       string // why a connection is lost; empty if none is
	noEffect   bool   // certainly nothing was done, so that repeating is safe
	changed    bool   // a request that was reported may have changed something
	retryAfter time.Duration
	unfinished bool // ErrUnfinished, and neutral
}

// diagnose examines a failure.
func diagnose(t errorTree, classify func(error) Class) (d diagnosis) {
	d.class = t.classBy(classify)
	if isCrash(t.err) {
		d.code = CodeToolFailed
		return d // what it crashed with says nothing about what was done before
	}

	d.explicit, _ = as[*Error](t)
	_, d.marked = t.explicitClass()
	d.final = t.final()
	d.unfinished = d.class.neutral() && t.is(ErrUnfinished)
	d.noEffect = t.hadNoEffect()
	d.retryAfter = d.retryAfterOf(t)
	if d.class != ClassNeutral || t.surelyLost() {
		d.lost = t.lostReason()
	}
	d.code = d.codeOf(t)
	if b, ok := t.err.(*blamed); ok {
		d.changed = b.changed
		if b.verdict.inTrouble() {
			d.learn(b.verdict)
		}
	}
	return d
}

// learn adds what the backend has said to a failure of which the tool's own error says less.
func (d *diagnosis) learn(v *verdict) {
	d.retryAfter = max(d.retryAfter, v.retryAfter)
	if d.code == CodeToolFailed && d.class == v.class {
		d.code, d.lost = v.code, v.lost
	}
}

func (d diagnosis) codeOf(t errorTree) Code {
	switch {
	case d.class == ClassInvalid:
		return CodeValidation
	case d.class == ClassCanceled:
		return CodeCanceled
	case t.is(context.DeadlineExceeded):
		return CodeTimeout
	case d.lost != "":
		return CodeConnectionLost
	default:
		return CodeToolFailed
	}
}

// callerIsHere corrects the diagnosis of an error that seemed to say that the caller has left, which
// isn't so.
func (d *diagnosis) callerIsHere(t errorTree) {
	d.class = t.blame()
	d.explicit = nil // it is a CANCELED of ours
	d.code = d.codeOf(t)
}

// A retryAfterError asks its caller to wait.
type retryAfterError interface {
	error
	RetryAfter() time.Duration
}

// retryAfterOf returns how long a failure asks to wait, zero if it doesn't ask.
func (d diagnosis) retryAfterOf(t errorTree) (after time.Duration) {
	if d.explicit != nil && d.explicit.RetryAfter > 0 {
		return d.explicit.RetryAfter
	}

	defer func() {
		if recover() != nil {
			after = 0
		}
	}()
	if e, ok := as[retryAfterError](t); ok {
		after = max(e.RetryAfter(), 0)
	}
	return after
}

// toError makes what an agent reads. The result may be the tool's own *Error.
func (d diagnosis) toError(tool string, err error) *Error {
	if d.explicit != nil {
		e := complete(tool, err, d.explicit)
		if e.Retryable && e.RetryAfter <= 0 && d.retryAfter > 0 {
			e = e.clone()
			e.RetryAfter = d.retryAfter
		}
		if d.final && e.Retryable {
			e = e.clone()
			e.giveUp(suggestChange)
		}
		return e
	}

	var e *Error
	switch d.code {
	case CodeTimeout:
		e = TimeoutError(tool, 0)
	case CodeConnectionLost:
		e = ConnectionLostError(d.lost)
		e.Tool = tool
	case CodeValidation:
		e = validationError(tool, "%s got invalid arguments", subject(tool))
		if !d.marked {
			e.Message = subject(tool) + " rejected the request"
			e.suggest(suggestChange)
		}
	case CodeCanceled:
		e = canceledError(tool)
	default:
		e = newError(CodeToolFailed, tool, subject(tool)+" failed", false)
	}

	e.Err = err
	e.quiet = d.class == ClassInvalid || d.class == ClassNeutral
	e.Retryable, e.RetryAfter = d.class == ClassTransient, d.retryAfter
	switch {
	case e.Retryable:
	case e.Code == CodeToolFailed, e.Code == CodeTimeout, e.Code == CodeConnectionLost:
		e.giveUp(suggestChange)
	default:
		e.RetryAfter = 0
	}
	return e
}

// exhausted makes the error of a call whose attempts have all failed, the last one with err.
func (d diagnosis) exhausted(tool string, attempts int, err error) *Error {
	last := d.toError(tool, err)
	e := retryExhausted(tool, attempts)
	if !last.Retryable {
		e.giveUp(suggestOther)
	}
	e.Err, e.LastCode, e.RetryAfter = err, last.Code, last.RetryAfter

	reason := d.lost
	if own := d.explicit; own != nil && own.Message != "" {
		reason = own.Message
	}
	if reason != "" {
		e.Message += ": " + reason
	}
	if last.Suggestion != "" && !last.hasOurWords() {
		e.Suggestion = last.Suggestion
	}
	return e
}

// complete fills in what a tool left empty in its own *Error. It does so in a copy, since
// the original may be a package variable of the tool's.
func complete(tool string, err error, explicit *Error) *Error {
	whole := explicit.Code != "" && explicit.Tool != "" && explicit.Message != "" && explicit.Suggestion != ""
	if err == error(explicit) && whole {
		return explicit
	}

	e := explicit.clone()
	if err != error(explicit) {
		e.Err = err // keep what it is wrapped in
	}
	if e.Code == "" {
		e.Code = CodeToolFailed
	}
	if e.Tool == "" {
		e.Tool = tool
	}
	if e.Message == "" {
		e.Message = subject(e.Tool) + " failed"
	}
	if e.Suggestion == "" {
		e.suggest(e.Code.suggestion())
		switch {
		case e.Retryable:
		case e.Code == CodeRetryExhausted:
			e.suggest(suggestOther)
		case e.Suggestion == suggestions[CodeToolFailed]:
			e.suggest(suggestChange)
		}
	}
	return e
}
