package resilience

// The past of a call is what its attempts have shown so far.
type past struct {
	failure *failure // the last one; nil if there is none
	err     error    // the last one that the tool itself returned
	attempt int32    // that returned it, or whose failure has it as a cause
	effect  bool     // one may have had an effect
	made    bool     // one was made, rather than rejected by a Connector
	counted outcome  // of the last one that was made
}

// join makes f speak for the earlier attempts, too, and adds it to them.
func (p *past) join(f *failure) {
	p.failure = f
	if f.noEffect && p.effect {
		f.noEffect, f.err = false, &repeated{f.err}
	}
	if p.made && (f.notMade || f.rejected) && f.outcome != outcomeFailure {
		f.notMade, f.outcome = false, p.counted
	}

	p.effect = !f.noEffect
	if !f.notMade {
		p.made, p.counted = true, f.outcome
	}
}

// withLast returns e with the last error of the tool itself among its causes, if only an earlier
// attempt returned that.
func (c *call) withLast(e *Error) *Error {
	p := &c.past
	if p.attempt == int32(c.attempts) {
		return e
	}

	p.attempt = int32(c.attempts)
	return e.withCause(p.err)
}

// withCrash is withLast for the end of an attempt that has failed by f, nil if it hasn't. A crash that doesn't end the
// call is told later beside the tool's last error.
func (c *call) withCrash(e *Error, f *failure) *Error {
	e = c.withLast(e)
	if f != nil && isCrash(f.err) {
		c.past.err = e.Err
	}
	return e
}
