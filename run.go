package resilience

import (
	"context"
	"sync/atomic"
	"time"
)

// The states of a function that runs on a goroutine of its own.
const (
	running   int32 = iota
	failed          // its error is there, but not what that means
	finished        // its outcome is there
	abandoned       // its caller has left
)

// A runner calls a function on a goroutine of its own.
type runner[T any] struct {
	ctx     *callContext
	parent  <-chan struct{} // is closed when the parent of ctx ends
	fn      func(context.Context) (T, error)
	late    func(error)  // receives the outcome of an abandoned function; may be nil
	release func()       // called once an abandoned function has returned; may be nil
	tool    *toolState   // what an error means to; nil outside of a guard
	waits   *callContext // of the call, which goes on waiting after the caller has left; nil if it doesn't

	state   atomic.Int32
	value   T // like what follows, to be read once the function has finished
	err     error
	failure *failure // what err means; nil if it is nil
}

// enforce calls fn on a goroutine of its own and returns when fn returns or when ctx ends,
// whichever is first. ctx must be attended. Exactly one of the two wins: if ctx does,
// answered is false and fn is abandoned. abandon is called then, what it returns is called once fn has
// returned, and late receives fn's error. Both may be nil. If fn has returned an error by then, and only
// the examination of the error is abandoned, run returns that error, too.
func enforce[T any](
	ctx *callContext, abandon func() (release func()), late func(error), fn func(context.Context) (T, error),
) (value T, err error, answered bool) {
	return new(runner[T]).run(ctx, abandon, late, fn)
}

// run implements enforce. A runner may be reused only after run has reported answered.
func (r *runner[T]) run(
	ctx *callContext, abandon func() (release func()), late func(error), fn func(context.Context) (T, error),
) (value T, err error, answered bool) {
	if r.ctx != ctx {
		r.parent = ctx.parentDone() // before the function can hold a lock that the parent takes
	}
	r.ctx, r.fn, r.late = ctx, fn, late
	r.state.Store(running)
	go r.execute()

	for !ctx.over() {
		select {
		case <-ctx.wake: // a hint to look; an earlier attempt may have left a token
		case <-r.parent:
			ctx.parentEnded()
		}
		if r.state.Load() == finished {
			return r.take()
		}
	}

	if r.waits != nil && r.waitOn(ctx) {
		return r.take()
	}

	if abandon != nil {
		r.release = abandon() // before the goroutine can see that it is abandoned
	}
	if err, left := r.leave(); left {
		return value, err, false
	}

	if r.release != nil {
		r.release()
		r.release = nil
	}
	return r.take()
}

// leave abandons the function, unless it has finished. It returns the error of one that has failed.
func (r *runner[T]) leave() (err error, left bool) {
	for {
		state := r.state.Load()
		switch state {
		case finished:
			return nil, false
		case failed:
			err = r.err  // not after the swap, when the goroutine may take it
			r.late = nil // the call has its error
		}
		if r.state.CompareAndSwap(state, abandoned) {
			return err, true
		}
	}
}

// waitOn waits for a function whose caller has left, until its own timeout or that of the whole call,
// and reports whether it has finished.
func (r *runner[T]) waitOn(ctx *callContext) bool {
	left := min(ctx.left(), r.waits.left())
	if left <= 0 {
		return r.state.Load() == finished
	}

	timer := time.NewTimer(left)
	defer timer.Stop()
	for {
		select {
		case <-ctx.wake:
			if r.state.Load() == finished {
				return true
			}
		case <-timer.C:
			return false
		}
	}
}

// take returns the outcome and forgets it, since a tool may keep its context for long, and
// with it the call that the runner is part of.
func (r *runner[T]) take() (value T, err error, answered bool) {
	value, err = r.value, r.err
	var zero T
	r.value, r.err = zero, nil
	return value, err, true
}

// execute runs on the goroutine.
func (r *runner[T]) execute() {
	ctx := r.ctx // once the function has finished, the runner may be reused
	defer r.finish(ctx)

	r.err = ErrGoexit // unless fn returns or panics
	r.value, r.err = protect(ctx, r.fn)
	if r.err != nil {
		r.state.CompareAndSwap(running, failed)
		examine(r.tool, ctx, r.err, &r.failure)
	}
}

// finish hands the outcome over to the goroutine that waits for it, if that is still there.
func (r *runner[T]) finish(ctx *callContext) {
	if r.err != nil && r.failure == nil { // fn has ended the goroutine
		r.failure = newFailureAlone(unread(r.err), ctx, ctx.isExcused())
	}
	r.fn = nil
	if r.state.CompareAndSwap(running, finished) || r.state.CompareAndSwap(failed, finished) {
		ctx.awake()
		return
	}

	if r.release != nil {
		r.release()
	}
	_, err, _ := r.take()
	r.failure = nil
	if r.late != nil {
		r.late(err)
	}
}
