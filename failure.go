package resilience

import "context"

// A failure is what a guard has to know of an error that a tool returned. It is made on the goroutine
// of the tool and within its timeout, because it takes the methods of the error and the Classify
// functions of the Config, which may do all that a tool may do.
type failure struct {
	err error // the tool's; errUnreadable if it can't be read
	diagnosis
	outcome  outcome // while the caller is here
	echo     bool    // it is the error or the cause of its context, which has ended
	canceled bool    // it is, or wraps, the error of a context that has ended
	rejected bool    // by the guard of a call that the tool made
	notMade  bool    // by a Connector
}

// examine returns what err means to a tool. Outside of a guard, s is nil: then only err is known.
func examine(s *toolState, ctx *callContext, err error) (f *failure) {
	defer func() {
		if recover() != nil {
			f = unexamined(ctx, err)
		}
	}()

	t := treeOf(err)
	if s == nil {
		return &failure{err: t.err}
	}
	return newFailure(t, ctx, s.retry.Classify, s.breaker.cfg.Classify)
}

// newFailure asks retry and breaker, the Classify fields of a Retry and of a BreakerConfig.
func newFailure(t errorTree, ctx *callContext, retry, breaker func(error) Class) *failure {
	err := t.err
	t = ctx.backend.blame(t)
	f := &failure{
		err:       err,
		diagnosis: diagnose(t, retry),
		outcome:   t.outcome(breaker, true),
		echo:      ctx.echoedBy(err),
		canceled:  !isCrash(err) && (t.is(context.Canceled) || t.is(context.DeadlineExceeded)),
		rejected:  t.rejected(),
		notMade:   t.notMade(),
	}
	if f.class == ClassCanceled && t.bareCancel() {
		f.callerIsHere(t) // the tool itself canceled something
	}
	return f
}

// unexamined returns the failure of err if it could not be examined, because the methods of err or a
// Classify function panic, block or end their goroutine. Of err, only an *Error of ours and a crash count.
func unexamined(ctx *callContext, err error) *failure {
	if e, ok := err.(*Error); !isCrash(err) && (!ok || e == nil) {
		err = errUnreadable
	}
	return newFailure(errorTree{err: err}, ctx, nil, nil)
}

// cause returns the error of the tool, nil if there is none.
func (f *failure) cause() error {
	if f == nil {
		return nil
	}
	return f.err
}

// examineAside examines an error of our own. Its causes may be a tool's.
func (c *call) examineAside(e *Error) *failure {
	return c.newFailureAside(e, &c.ctx, c.state.retry.Classify, c.state.breaker.cfg.Classify)
}

// examineLate examines the error of a tool that has returned in time, when the timeout has ended its
// examination. It asks no Classify function: that is what takes so long, or a method of the error.
func (c *call) examineLate(ctx *callContext, err error) *failure {
	return c.newFailureAside(err, ctx, nil, nil)
}

func (c *call) newFailureAside(err error, ctx *callContext, retry, breaker func(error) Class) *failure {
	var f *failure
	if aside(&c.guard.examining, func() { f = newFailure(treeOf(err), ctx, retry, breaker) }) && f != nil {
		return f
	}
	return unexamined(ctx, err)
}
