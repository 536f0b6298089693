package resilience

import (
	"maps"
	"time"
)

// AsError turns any error into a new [*Error] for the named tool, around err. It returns nil for
// nil. An *Error in err's chain decides by its own fields, including Details; only its empty
// fields are filled in. Any other error becomes TIMEOUT (a context.DeadlineExceeded, or that status of
// gRPC or HTTP), CONNECTION_LOST, CANCELED, VALIDATION_ERROR ([MarkInvalid], or an answer that rejects the request, see
// [Classify]) or TOOL_FAILED, with a message that contains none of its text.
func AsError(tool string, err error) *Error {
	if err == nil {
		return nil
	}

	d := diagnose(err, nil)
	e := d.toError(tool, new(Error))
	e.derives(&d)
	e.known.derived = d.explicit == nil || d.explicit == d.rejects || d.explicit.holds().derived
	e.Details = maps.Clone(e.Details)
	e.seal()
	return e
}

// A diagnosis is all that is known of an error that a tool returned.
type diagnosis struct {
	facts
	class      Class
	reads      Class // the same, or for MarkNeutral what the error means to an agent
	code       Code  // what the error becomes without an explicit one
	changed    bool  // a request that was reported may have changed something
	retryAfter time.Duration
	unfinished bool // ErrUnfinished
}

// diagnose examines a failure.
func diagnose(err error, classify func(error) Class) (d diagnosis) {
	d.read(err)
	d.class = d.classBy(classify)
	d.conclude()
	return d
}

// conclude completes a diagnosis that has its facts and its class.
func (d *diagnosis) conclude() {
	d.code = CodeToolFailed
	d.reads = d.class
	if isCrash(d.err) { // what it crashed with says nothing about what was done before
		d.statement = statement{said: true, says: ClassPermanent, rejected: d.rejected, nested: d.nested, counted: d.counted}
		return
	}

	if (d.blamed != nil || d.said) && d.explicit.saysNothing() {
		d.explicit = nil // it is a CANCELED of ours, for what the tool itself has canceled, or for what it knows better
	}
	if d.explicit == nil && d.tellsNothing() {
		d.explicit = d.rejects
	}
	if d.explicit.isMistake() && !d.class.neutral() {
		d.explicit = nil // a mark contradicts what we have said of a call that the tool made
	}
	d.retryAfter = d.wait()
	d.unfinished = d.has(isUnfinished)
	switch {
	case d.neutral && d.class == ClassNeutral, d.counted && d.class == ClassPermanent && d.meaning().neutral():
		d.reads = d.meaning()
	}
	if d.reads == ClassNeutral && !d.surelyLost {
		d.lost = ""
	}
	d.code = d.becomes()
	if b := d.blamed; b != nil {
		d.changed = b.changed
		if b.verdict.inTrouble() {
			d.learn(b.verdict)
		}
	}
}

// learn adds what the backend has said to a failure of which the tool's own error says less.
func (d *diagnosis) learn(v *verdict) {
	d.retryAfter = max(d.retryAfter, v.retryAfter)
	if d.code == CodeToolFailed && d.reads == v.class {
		d.code, d.lost = v.code, v.lost
	}
}

// becomes returns the code of an error that has no explicit one.
func (d *diagnosis) becomes() Code {
	switch {
	case d.reads == ClassInvalid:
		return CodeValidation
	case d.reads == ClassCanceled:
		return CodeCanceled
	case d.has(isDeadlineExceeded), d.sign == signTimeout:
		return CodeTimeout
	case d.lost != "":
		return CodeConnectionLost
	default:
		return CodeToolFailed
	}
}

// isTimeout reports whether a failure says no more than that a deadline has passed.
func (d *diagnosis) isTimeout() bool {
	switch {
	case d.said:
		return d.timeout
	case d.sign >= signTrouble && d.sign != signTimeout, d.surelyLost && d.lost != networkTimeout:
		return false
	}
	return d.code == CodeTimeout || d.has(isIODeadline)
}

// A retryAfterError asks its caller to wait.
type retryAfterError interface {
	error
	RetryAfter() time.Duration
}

// wait returns how long a failure asks to wait, zero if it doesn't ask.
func (f *facts) wait() time.Duration {
	if f.explicit != nil && f.explicit.RetryAfter > 0 {
		return f.explicit.RetryAfter
	}

	if f.waits == nil {
		return 0
	}
	defer ignorePanic() // then it doesn't ask
	return max(f.waits.RetryAfter(), 0)
}

// toError makes what an agent reads, in e or in a copy of the tool's own *Error.
func (d *diagnosis) toError(tool string, e *Error) *Error {
	if d.explicit != nil {
		e := complete(tool, d.err, d.explicit)
		if _, unmade := e.Err.(*notMade); d.notMade && !unmade && d.explicit.isOfConnector() {
			e.Err = &notMade{e.Err} // it is still one
		}
		if e.Retryable && e.RetryAfter <= 0 {
			e.RetryAfter = d.retryAfter
		}
		rejects := d.rejects != nil && d.rejects.Code == e.Code // of which the words are
		mistaken := d.derived && d.class.neutral() && !d.neutral && d.explicit.isAsSealed() && !rejects
		e.known.quiet = d.explicit.holds().quiet || mistaken
		if (d.final || mistaken) && e.Retryable {
			e.giveUp(suggestChange)
		}
		e.known.class = d.class
		return e
	}

	switch d.code {
	case CodeTimeout:
		e = TimeoutError(tool, 0)
	case CodeConnectionLost:
		e = ConnectionLostError(d.lost)
		e.Tool = tool
	case CodeValidation:
		e = validationError(tool, "%s", sentence(tool, "got invalid arguments"))
		if !d.said {
			e.Message = sentence(tool, "rejected the request")
			e.suggest(suggestChange)
		}
	case CodeCanceled:
		e = canceledError(tool)
	default:
		e.fill(CodeToolFailed, tool, sentence(tool, "failed"), false)
	}

	e.Err = d.err
	e.known.quiet = d.class == ClassInvalid || d.class == ClassNeutral
	e.Retryable, e.RetryAfter = d.reads == ClassTransient, d.retryAfter
	switch {
	case e.Retryable:
	case e.Code == CodeToolFailed, e.Code == CodeTimeout, e.Code == CodeConnectionLost:
		e.giveUp(suggestChange)
	default:
		e.RetryAfter = 0
	}
	e.known.class = d.class
	return e
}

// exhausted makes the error of a call whose attempts have all failed, the last one as d says.
func (d *diagnosis) exhausted(tool string, attempts int) *Error {
	last := d.toError(tool, new(Error))
	e := retryExhausted(tool, attempts)
	if !last.Retryable {
		e.giveUp(suggestOther)
	}
	e.Err, e.LastCode, e.RetryAfter = d.err, last.Code, last.RetryAfter

	reason := d.lost
	if own := d.explicit; own != nil && own.Message != "" {
		reason = own.Message
	}
	if reason != "" {
		e.Message += ": " + reason
	}
	if !last.hasOurWords() {
		e.Suggestion = last.Suggestion
	}
	return e
}

// complete fills in what a tool left empty in its own *Error. It does so in a copy, since
// the original may be a package variable of the tool's.
func complete(tool string, err error, explicit *Error) *Error {
	e := explicit.clone()
	e.known = known{bare: explicit.holds().bare}
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
		e.Message = sentence(e.Tool, "failed")
	}
	if e.Suggestion == "" {
		e.suggest(e.Code.suggestion())
		if e.Code == CodeRetryExhausted && !e.Retryable {
			e.suggest(suggestOther)
		}
	}
	switch words := e.Suggestion; { // of ours, which a program may have made untrue since
	case words == suggestions[CodeToolFailed] && !e.Retryable:
		e.suggest(suggestChange)
	case words == e.ours && (words == suggestChange || words == suggestOther) && e.Retryable:
		e.suggest(e.Code.suggestion())
	}
	return e
}
