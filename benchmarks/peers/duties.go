package peers

import (
	"context"
	"runtime/debug"
	"sync/atomic"

	"github.com/sony/gobreaker/v2"
)

// newDuties returns the least that keeps the guard's promises to a tool that succeeds: a state for each tool, a
// breaker that counts the call once, a context whose end has a cause, a recovered panic and, if the timeout is
// enforced, a result that either the caller takes or the abandoned tool. It has no retries, classes, options or
// observers, and is no library: it shows how much of the guard's time they take.
func newDuties(enforced bool) func(Settings) Do {
	return func(s Settings) Do {
		states := make(map[string]*gobreaker.TwoStepCircuitBreaker[struct{}])
		for _, tool := range s.Tools {
			states[tool] = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
				Timeout:     s.Cooldown,
				ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(s.Failures) },
			})
		}

		return func(ctx context.Context, tool string, fn Tool) (string, error) {
			done, err := states[tool].Allow()
			if err != nil {
				return "", err
			}
			ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, context.DeadlineExceeded)
			defer cancel()

			d := &duty{fn: fn}
			if enforced {
				d.enforce(ctx)
			} else {
				d.run(ctx)
			}
			done(d.err)
			return d.value, d.err
		}
	}
}

// A duty is one call of a tool.
type duty struct {
	fn    Tool
	taken atomic.Bool // by the caller or by the goroutine of the tool, whichever is first
	value string
	err   error
}

// run calls the tool, whose panic becomes an error.
func (d *duty) run(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			d.err = &panicked{p, debug.Stack()}
		}
	}()
	d.value, d.err = d.fn(ctx)
}

type panicked struct {
	value any
	stack []byte
}

func (*panicked) Error() string { return "panic" }

// enforce runs the tool on a goroutine of its own, and abandons it when ctx ends.
func (d *duty) enforce(ctx context.Context) {
	returned := make(chan struct{}, 1)
	tool := &duty{fn: d.fn}
	go func() {
		defer func() {
			if tool.taken.CompareAndSwap(false, true) {
				returned <- struct{}{}
			}
		}()
		tool.run(ctx)
	}()

	select {
	case <-returned:
		d.value, d.err = tool.value, tool.err
	case <-ctx.Done():
		if tool.taken.CompareAndSwap(false, true) {
			d.err = context.Cause(ctx)
			return
		}
		<-returned
		d.value, d.err = tool.value, tool.err
	}
}
