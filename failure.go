package resilience

// A failure is what a guard has to know of an error that a tool returned. It is made on the goroutine
// of the tool and within its timeout, because it takes the methods of the error and the Classify
// functions of the Config, which may do all that a tool may do.
type failure struct {
	diagnosis
	begun   int     // requests of the call by then
	outcome outcome // while the caller is here
	echo    bool    // it is the error or the cause of its context, which has ended

	// inconclusive is whether it is a timeout that may mean the caller's deadline, of which some may have been kept, or
	// is excused.
	inconclusive, excused bool

	reply, kept Error // for the caller and for Health, if the call ends so: here, they need no allocations
}

// examine stores in to what err means to a tool, also if a Classify function or a method of err ends the goroutine.
// Outside of a guard, s is nil: then only err is known.
func examine(s *toolState, ctx *callContext, err error, to **failure) {
	f := new(failure)
	if s == nil {
		f.err = readable(err)
		*to = f
		return
	}

	read, concluded := false, false
	defer func() {
		_ = recover()
		switch {
		case !read: // a method has called Goexit
			f = newFailureAlone(unread(err), ctx, ctx.isExcused())
		case !concluded:
			f.conclude(ctx, nil)
		}
		if f.outcome == outcomePending {
			f.outcome = f.outcomeBy(nil)
		}
		*to = f
	}()
	f.read(err)
	f.begun = ctx.blame(&f.facts)
	read = true
	f.conclude(ctx, s.retry.Classify)
	concluded = true
	if excused := ctx.isExcused(); f.isTimeout() && (excused || ctx.call().hurried()) {
		f.disregard(excused)
	}
	f.outcome = f.outcomeBy(s.breaker.cfg.Classify)
}

// newFailure asks retry and breaker, the Classify fields of a Retry and of a BreakerConfig.
func newFailure(err error, ctx *callContext, excused bool, retry, breaker func(error) Class) *failure {
	f := new(failure)
	f.read(err)
	f.begun = ctx.blame(&f.facts)
	f.conclude(ctx, retry)
	if excused && f.isTimeout() {
		f.disregard(true)
	}
	f.outcome = f.outcomeBy(breaker)
	return f
}

// newFailureAlone makes a failure of err as if it wrapped nothing.
func newFailureAlone(err error, ctx *callContext, excused bool) *failure {
	f := new(failure)
	f.readAlone(err)
	f.begun = ctx.blame(&f.facts)
	f.conclude(ctx, nil)
	if excused && f.isTimeout() {
		f.disregard(true)
	}
	f.outcome = f.outcomeBy(nil)
	return f
}

// conclude completes a failure that has its facts, but for its outcome. It asks retry, the Classify field of a Retry.
func (f *failure) conclude(ctx *callContext, retry func(error) Class) {
	f.class = f.classBy(retry)
	f.diagnosis.conclude()
	f.echo = !isCrash(f.err) && f.has(isCanceled|isDeadlineExceeded) && ctx.echoedBy(f.err)
}

// disregard notes that the failure is inconclusive, which the breaker's Classify learns from its error, and whether it is
// excused.
func (f *failure) disregard(excused bool) {
	f.inconclusive, f.excused = true, excused
	f.blamed = &blamed{error: f.err, inconclusive: true}
}

// unread returns what is known of err without any of its methods: a crash, and an *Error but for its cause.
func unread(err error) error {
	switch e := err.(type) {
	case *PanicError:
		if e == nil {
			break
		}
		if _, isError := e.Value.(error); isError {
			return &PanicError{Value: errUnreadable, Stack: e.Stack}
		}
		return e
	case *Error:
		if e == nil {
			break
		}
		if e.Err != nil {
			e = e.clone()
			e.Err = errUnreadable
		}
		return e
	}

	if err == ErrGoexit {
		return err
	}
	return errUnreadable
}

// examineAside examines an error of our own, for the end of ctx. Its causes may be a tool's, which was examined before.
func (c *call) examineAside(e *Error, ctx *callContext) *failure {
	return c.newFailureAside(e, &c.ctx, e, ctx.isExcused(), c.state.retry.Classify, c.state.breaker.cfg.Classify)
}

// examineLate examines the error of a tool that has returned in time, when the timeout has ended its
// examination. It asks no Classify function: that is what takes so long, or a method of the error.
func (c *call) examineLate(ctx *callContext, err error) *failure {
	return c.newFailureAside(err, ctx, unread(err), ctx.isExcused(), nil, nil)
}

// newFailureAside makes a failure of what is known anyway if the examination of err takes too long.
func (c *call) newFailureAside(
	err error, ctx *callContext, known error, excused bool, retry, breaker func(error) Class,
) *failure {
	var f *failure
	if aside(&c.guard.examining, func() { f = newFailure(err, ctx, excused, retry, breaker) }) && f != nil {
		return f
	}
	return newFailureAlone(known, ctx, excused)
}
