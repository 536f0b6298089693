package resilience

import "context"

// A failure is what a guard has to know of an error that a tool returned. It is made on the goroutine
// of the tool and within its timeout, because it takes the methods of the error and the Classify
// functions of the Config, which may do all that a tool may do.
type failure struct {
	err error // the tool's; errUnreadable if it can't be read
	diagnosis
	begun    int     // requests of the call by then
	outcome  outcome // while the caller is here
	echo     bool    // it is the error or the cause of its context, which has ended
	canceled bool    // it is, or wraps, the error of a context that has ended
	rejected bool    // by the guard of a call that the tool made
	nested   bool    // it holds such a rejection, among other things
	notMade  bool    // by a Connector
}

// examine stores in f what err means to a tool, also if a Classify function ends the goroutine. If a
// method of err does, f remains nil. Outside of a guard, s is nil: then only err is known.
func examine(s *toolState, ctx *callContext, err error, f **failure) {
	t := treeOf(err)
	if s == nil {
		*f = &failure{err: t.readable()}
		return
	}

	defer func() {
		_ = recover()
		if *f == nil {
			*f = newFailure(t, ctx, nil, nil)
		}
	}()
	*f = newFailure(t, ctx, s.retry.Classify, s.breaker.cfg.Classify)
}

// newFailure asks retry and breaker, the Classify fields of a Retry and of a BreakerConfig.
func newFailure(t errorTree, ctx *callContext, retry, breaker func(error) Class) *failure {
	err := t.readable()
	t, begun := ctx.blame(t)
	f := &failure{
		begun:     begun,
		err:       err,
		diagnosis: diagnose(t, retry),
		outcome:   t.outcome(breaker, true),
		echo:      ctx.echoedBy(err),
		canceled:  !isCrash(err) && (t.is(context.Canceled) || t.is(context.DeadlineExceeded)),
		rejected:  t.rejected(),
		nested:    t.holdsRejection(),
		notMade:   t.notMade(),
	}
	if f.class == ClassCanceled && t.bareCancel() {
		f.callerIsHere(t) // the tool itself canceled something
	}
	return f
}

// unread returns what is known of err without any of its methods: a crash, and an *Error but for its cause.
func unread(err error) errorTree {
	switch e := err.(type) {
	case *PanicError:
		if _, isError := e.Value.(error); isError {
			err = &PanicError{Value: errUnreadable, Stack: e.Stack}
		}
		return errorTree{err: err}
	case *Error:
		if e == nil {
			break
		}
		if e.Err != nil {
			e = e.clone()
			e.Err = errUnreadable
		}
		return errorTree{err: e}
	}

	if err == ErrGoexit {
		return errorTree{err: err}
	}
	return errorTree{err: errUnreadable}
}

// cause returns the error of the tool, nil if there is none.
func (f *failure) cause() error {
	if f == nil {
		return nil
	}
	return f.err
}

// examineAside examines an error of our own. Its causes may be a tool's, which was examined before.
func (c *call) examineAside(e *Error) *failure {
	return c.newFailureAside(e, &c.ctx, errorTree{err: e}, c.state.retry.Classify, c.state.breaker.cfg.Classify)
}

// examineLate examines the error of a tool that has returned in time, when the timeout has ended its
// examination. It asks no Classify function: that is what takes so long, or a method of the error.
func (c *call) examineLate(ctx *callContext, err error) *failure {
	return c.newFailureAside(err, ctx, unread(err), nil, nil)
}

// newFailureAside makes a failure of what is known anyway if the examination of err takes too long.
func (c *call) newFailureAside(
	err error, ctx *callContext, known errorTree, retry, breaker func(error) Class,
) *failure {
	var f *failure
	if aside(&c.guard.examining, func() { f = newFailure(treeOf(err), ctx, retry, breaker) }) && f != nil {
		return f
	}
	return newFailure(known, ctx, nil, nil)
}
