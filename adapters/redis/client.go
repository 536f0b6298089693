package redisfleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
)

// The client calls functions of the user, such as a Dialer and hooks, and returns their errors. All of them may block,
// panic or end their goroutine, so the client is called, and its errors are examined, by bounded and apart only.

// maxHanging is how many calls of a member's client may hang at once. A client that is slow to give up has a few of
// them during an outage, and they must not keep it from trying again.
const maxHanging = 64

// errHanging is the error of an operation that isn't called because too many hang.
var errHanging = fmt.Errorf("%d calls of the client hang: it ignores their contexts", maxHanging)

// bounded calls an operation, and returns in time whatever that does: clients of Redis need not respect a context.
// hanging counts the operations that still run although their context has ended.
func bounded[T any](
	ctx context.Context, hanging *atomic.Int64, op func(context.Context) (T, error),
) (reply T, err error) {
	if hanging.Load() >= maxHanging {
		return reply, errHanging
	}
	reply, err = resilience.WithTimeout(ctx, "redis", patience, func(ctx context.Context) (T, error) {
		stop := context.AfterFunc(ctx, func() { hanging.Add(1) })
		defer func() {
			if !stop() {
				hanging.Add(-1)
			}
		}()

		reply, err := op(ctx)
		return reply, examine(err)
	})

	e, ended := err.(*resilience.Error)
	switch {
	case ended && e.Code == resilience.CodeTimeout && ctx.Err() == nil:
		err = silence{e}
	case ended && e.Code == resilience.CodeToolFailed:
		err = crash{e.Err, e}
	}
	return reply, err
}

// silence is a TIMEOUT in words that don't speak of a tool.
type silence struct{ error }

func (silence) Error() string   { return fmt.Sprintf("the server hasn't answered within %s", patience) }
func (s silence) Unwrap() error { return s.error }

// A crash is a panic or a runtime.Goexit of the client, in such words.
type crash struct{ cause, error error }

func (c crash) Error() string {
	if c.cause == resilience.ErrGoexit {
		return "the client has called runtime.Goexit"
	}
	return fmt.Sprintf("the client has failed: %v", c.cause)
}

func (c crash) Unwrap() error { return c.error }

// apart calls f on a goroutine of its own, and waits for it. It returns a crash if f panics or ends that goroutine.
func apart(f func()) error {
	done := make(chan error)
	go func() {
		cause := resilience.ErrGoexit
		defer func() {
			if v := recover(); v != nil {
				cause = &resilience.PanicError{Value: v, Stack: debug.Stack()}
			}
			if cause == nil {
				done <- nil
			} else {
				done <- crash{cause, cause}
			}
		}()

		f()
		cause = nil
	}()
	return <-done
}

// An examined is an error of the client after its methods have been called once: they didn't panic then.
type examined struct {
	error
	text    string
	refusal bool
}

func (e *examined) Error() string { return e.text }
func (e *examined) Unwrap() error { return e.error }

// examine calls the methods of an error.
func examine(err error) error {
	if err == nil {
		return nil
	}
	var reply redis.Error
	refused := errors.As(err, &reply) && refuses(reply.Error())
	return &examined{err, err.Error(), refused}
}

// refuses reports whether Redis says by a reply that it will never serve the member as it is configured.
func refuses(reply string) bool {
	if strings.HasPrefix(reply, "ERR max number of clients") {
		return false
	}
	for _, prefix := range []string{"NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "ERR"} {
		if strings.HasPrefix(reply, prefix) {
			return true
		}
	}
	return false
}

// isRefusal reports whether an error of bounded is a reply that refuses the member.
func isRefusal(err error) bool {
	e, ok := err.(*examined)
	return ok && e.refusal
}

// isTimeout reports whether nothing has arrived in time.
func isTimeout(err error) (yes bool) {
	defer func() { _ = recover() }() // which leaves it false
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
