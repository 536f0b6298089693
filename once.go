package resilience

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"sync/atomic"
	"time"
)

const (
	defaultOnceFor = 2 * time.Minute
	maxOutcome     = 64 << 10 // bytes of JSON, of an outcome that is kept
)

// Once makes the call the same as any other call of the tool with this key, by the same agent if that is known (see
// Request.Caller). The calls of an agent that have equal arguments are the same without it. An empty key means that.
//
// A call of a tool that is neither [ReadOnly] nor [Idempotent] may act although its caller has left, or has received
// TIMEOUT. If the same call is made again, it joins the first one, see [Config].OnceFor. A call whose outcome its
// caller has received is never joined.
func Once(key string) Option { return func(o *options) { o.once = key } }

// An orphan is a call whose agent hasn't learned its outcome: the caller has left, or the timeout has passed, while the
// tool runs.
type orphan struct {
	key     onceKey
	start   time.Time
	outcome atomic.Pointer[any] // nil while the tool runs
}

// A onceKey is equal for calls that are the same.
type onceKey struct {
	sum   [sha256.Size]byte // of the tool, the agent and the arguments
	value reflect.Type      // of the result
}

func (k onceKey) isNone() bool { return k.sum == [sha256.Size]byte{} }

// failed is the outcome of an orphan that has failed, or whose result is too large.
var failed any = new(struct{})

// onceSum returns the sum of the key, before the tool can change its arguments. It is zero if no call is the same.
func (e *entry) onceSum() (none [sha256.Size]byte) {
	r, what := e.opts.request, []byte(e.opts.once)
	agent := cmp.Or(r.Caller, r.Session)
	if e.guard.cfg.OnceFor < 0 || e.effect().repeatable() {
		return none
	}
	if len(what) == 0 && agent != "" && !r.Client && e.opts.args != nil {
		what = canonical([]any{e.opts.args, r.Input})
	}
	if len(what) == 0 {
		return none
	}
	text, _ := json.Marshal([]string{e.tool, agent, string(what)}) // it can't fail
	return sha256.Sum256(text)
}

// canonical returns v as JSON with sorted keys, nil if it has none.
func canonical(v any) []byte {
	text, err := marshal(v)
	if err != nil {
		return nil
	}
	var plain any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&plain)    // it can't fail
	text, _ = json.Marshal(plain) // nor can this
	return text
}

// orphan notes that the agent won't learn how the tool ends. Of several calls that are the same, the first is joined.
func (c *call) orphan() {
	if c.once.isNone() {
		return
	}
	o := &orphan{key: c.once, start: c.start}
	if c.guard.orphans.add(c.once, func() *orphan { return o }, (*orphan).hasEnded) == o {
		c.orphaned = o
	}
}

func (o *orphan) hasEnded() bool { return o.outcome.Load() != nil }

// settleOrphan notes how the tool has ended, before the call does: the value is kept if no caller receives it.
func (c *call) settleOrphan(value any, keep bool) {
	if c.orphaned == nil { // the tool was faster than the end of its context, or is Cooperative
		c.orphan()
	}
	c.guard.settle(c.orphaned, value, keep)
}

// settle notes the outcome of an orphan, which may be nil.
func (g *Guard) settle(o *orphan, value any, keep bool) {
	if o == nil {
		return
	}
	if keep {
		text, err := marshal(value)
		keep = err == nil && len(text) <= maxOutcome
	}
	if !keep {
		o.outcome.Store(&failed)
		g.forget(o)
		return
	}
	o.outcome.Store(&value)
	time.AfterFunc(g.cfg.OnceFor, func() { g.forget(o) })
}

// forget removes o, unless another orphan has taken its place.
func (g *Guard) forget(o *orphan) {
	if g.orphans.get(o.key) == o {
		g.orphans.remove(o.key)
	}
}

// join waits for the orphan that is the same call as this one, if there is one, and returns it if it has succeeded. It
// returns an error if this call ends first. Otherwise the call has to be made.
func (e *entry) join(ctx context.Context) (*orphan, *Error) {
	if e.once.isNone() {
		return nil, nil
	}
	o := e.guard.orphans.get(e.once)
	if o == nil {
		return nil, nil
	}

	defer e.noteWait(time.Now())
	waiting, cancel := context.WithTimeout(ctx, e.limits.timeout)
	defer cancel()
	if poll(waiting, o.hasEnded) != nil {
		ended := endOf(ctx, e.tool)
		if ended == nil {
			ended = TimeoutError(e.tool, e.limits.timeout)
		}
		ended.forEffect(e.effect(), true)
		return nil, ended
	}

	if o.outcome.Load() == &failed {
		return nil, nil
	}
	if ctx.Err() == nil { // this caller receives it
		e.guard.forget(o)
	}
	return o, nil
}
