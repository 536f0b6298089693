package resilience

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"reflect"
	"sync/atomic"
	"time"
)

const (
	defaultOnceFor = 2 * time.Minute
	maxResult      = 64 << 10 // bytes of JSON, of a result that is kept
)

// Once makes the call the same as any other call of the tool with this key, by the same agent if that is known (see
// Request.Caller). Without a key, the calls of one agent with equal arguments are the same.
//
// A call of a tool that is neither [ReadOnly] nor [Idempotent] may act although its caller has left, or has received
// TIMEOUT. If the same call is made again, it joins the first one, whose result it returns, see [Config].OnceFor. It is
// made if the first one has failed, and CANCELED if nobody knows how that ended. A call whose outcome its caller has
// received is never joined.
func Once(key string) Option { return func(o *options) { o.once = key } }

// An orphan is a call whose agent hasn't learned its outcome: the caller has left, or the timeout has passed, while the
// tool runs.
type orphan struct {
	key    onceKey
	start  time.Time
	left   bool                // the caller has ended the call
	result atomic.Pointer[any] // nil while the tool runs
}

// A onceKey is equal for calls that are the same.
type onceKey struct {
	sum   [sha256.Size]byte // of the tool, the agent and the arguments
	value reflect.Type      // of the result
}

func (k onceKey) isNone() bool { return k.sum == [sha256.Size]byte{} }

// These are results of orphans that aren't values.
var (
	orphanFailed  any = "failed"  // the tool has failed: the same call is made
	orphanUnknown any = "unknown" // the tool was cut off, or its result is too large
)

// onceSum returns the sum of the key, before the tool can change its arguments. It is zero if no call is the same.
func (e *entry) onceSum() (none [sha256.Size]byte) {
	r, key := e.opts.request, e.opts.once
	agent := cmp.Or(r.Caller, r.Session)
	byArguments := key == "" && agent != "" && !r.Client && e.opts.args != nil
	if key == "" && !byArguments || e.guard.cfg.OnceFor < 0 || e.declaredEffect().repeatable() {
		return none
	}

	if byArguments {
		plain, err := plainJSON([]any{e.opts.args, r.Input})
		if err != nil {
			return none
		}
		text, _ := json.Marshal(plain) // it can't fail, and sorts the keys
		key = string(text)
	}
	text, _ := json.Marshal([]string{e.tool, agent, key}) // it can't fail
	return sha256.Sum256(text)
}

// orphan notes that the agent won't learn how the tool ends. Of several calls that are the same, the first is joined.
func (c *call) orphan() {
	if c.once.isNone() {
		return
	}
	o := &orphan{key: c.once, start: c.start, left: c.scope.Context.Err() != nil}
	if c.guard.orphans.add(c.once, func() *orphan { return o }, (*orphan).hasEnded) == o {
		c.orphaned = o
	}
}

func (o *orphan) hasEnded() bool { return o.result.Load() != nil }

// settleOrphan notes how the tool has ended, before the call does.
func (c *call) settleOrphan(value any, f *failure) {
	if c.orphaned == nil { // the tool was faster than the end of its context, or is Cooperative
		c.orphan()
	}
	switch o := c.orphaned; {
	case o == nil:
	case f != nil:
		c.guard.settle(o, nil, f.err)
	case o.left:
		c.guard.settle(o, value, nil)
	default:
		c.guard.drop(o) // its caller receives the value
	}
}

// settle notes how the tool of an orphan has ended.
func (g *Guard) settle(o *orphan, value any, err error) {
	switch {
	case err == nil && isSmall(value):
		o.result.Store(&value)
	case err == nil, o.left && errors.Is(err, context.Canceled):
		o.result.Store(&orphanUnknown)
	default:
		g.drop(o)
		return
	}
	time.AfterFunc(g.cfg.OnceFor, func() { g.forget(o) })
}

// isSmall reports whether a value may be kept.
func isSmall(value any) bool {
	text, err := marshal(value)
	return err == nil && len(text) <= maxResult
}

// drop lets the same call be made, even if it waits for o already.
func (g *Guard) drop(o *orphan) {
	o.result.Store(&orphanFailed)
	g.forget(o)
}

// forget removes o, unless another orphan has taken its place.
func (g *Guard) forget(o *orphan) {
	if g.orphans.get(o.key) == o {
		g.orphans.remove(o.key)
	}
}

// join waits for the orphan that is the same call as this one, if there is one, and returns it if it has succeeded. It
// returns an error if its outcome is unknown, or if this call ends first. Otherwise the call has to be made.
func (e *entry) join(ctx context.Context) (*orphan, *Error) {
	if e.once.sum = e.onceSum(); e.once.isNone() {
		return nil, nil
	}
	o := e.guard.orphans.get(e.once)
	if o == nil {
		return nil, nil
	}

	waiting, cancel := context.WithTimeout(ctx, e.limits.timeout)
	defer cancel()
	if poll(waiting, o.hasEnded) != nil {
		ended := endOf(ctx, e.tool)
		if ended == nil {
			ended = TimeoutError(e.tool, e.limits.timeout)
		}
		ended.forEffect(e.declaredEffect(), true)
		return nil, ended
	}

	result := o.result.Load()
	if result == &orphanFailed {
		return nil, nil
	}
	if ctx.Err() == nil { // this caller receives it
		e.guard.forget(o)
	}
	if result == &orphanUnknown {
		return nil, e.unknownOutcome(o)
	}
	return o, nil
}

// unknownOutcome returns the error of a call that can't join o.
func (e *entry) unknownOutcome(o *orphan) *Error {
	ago := plural(wholeSeconds(time.Since(o.start)), "second")
	unknown := newError(CodeCanceled, e.tool, "The same call was made "+ago+" ago, and its outcome is unknown", false)
	unknown.forEffect(e.declaredEffect(), true)
	return unknown
}
