package resilience_test

import (
	"context"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file makes the calls of the load test.

type answer = resilience.Result[*attempt]

// records returns one new call or several of different tools, as many as there is room for.
func (g *soakGuard) records(d dice) (rs []*record) {
	calls, patience := 1, 1000*g.unit
	if d.IntN(4) == 0 {
		calls = 3
	}

	for range calls {
		name := g.drawName(d)
		same := func(r *record) bool { return r.tool == name }
		if slices.ContainsFunc(rs, same) || !g.enter(patience) {
			break
		}
		rs = append(rs, g.newRecord(d, name, nil))
		patience = 0
	}
	return rs
}

func (s *soak) drawName(d dice) string { return draw(d, toolNames, anyRow).what(s, d) }

// enter reports whether there is room for another call, for which it waits that long.
func (g *soakGuard) enter(patience time.Duration) bool {
	select {
	case g.room <- struct{}{}:
		return true
	case <-due(patience):
		return false
	}
}

func (g *soakGuard) newRecord(d dice, tool string, parent *record) *record {
	config, listed := soakTools(g.unit)[tool]
	if !listed {
		config.Timeout = g.Timeout(tool)
	}

	r := &record{guard: g, tool: tool, config: config, parent: parent, seed: d.Uint64()}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[r] = true
	return r
}

// leave makes room for another call.
func (g *soakGuard) leave(r *record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, r)
	<-g.room
}

// call makes new calls.
func (g *soakGuard) call(ctx context.Context, d dice, rs []*record) {
	if len(rs) == 0 {
		return
	}

	ctx = context.WithValue(ctx, callsKey{}, rs)
	request := requests[0]
	if len(rs) == 1 {
		request = draw(d, requests, anyRow)
		request.what(rs[0], d)
	}
	entry := draw(d, entries, func(e row[func(context.Context, []*record)]) bool {
		switch e.name {
		case "All":
			return request.name == requests[0].name
		case "Wrap":
			return len(rs) == 1 && rs[0].tool != "" && !rs[0].noFunc // otherwise Wrap panics
		}
		return len(rs) == 1
	})

	for _, r := range rs {
		r.caller, r.entry = ctx, entry.name
		if g.fake {
			context.AfterFunc(ctx, func() { r.update(func() { r.left = time.Now() }) })
		}
	}
	entry.what(ctx, rs)
}

// receive makes a call that may end its goroutine.
func (r *record) receive(call func() answer) {
	var got *answer
	defer r.update(func() {
		at, ok := r.caller.Deadline()
		r.back, r.got, r.ended, r.tooLate = true, got, r.caller.Err(), ok && !time.Now().Before(at)
		if got == nil {
			r.guard.count("exit of the caller")
		}
	})

	a := call()
	got = &a
}

func (r *record) do(ctx context.Context) answer {
	return answerOf(resilience.Do(ctx, r.guard.Guard, r.tool, r.function(), r.options()...))
}

func (r *record) run(ctx context.Context) answer {
	return resilience.Run(ctx, r.guard.Guard, r.tool, r.function(), r.options()...)
}

func (r *record) wrap(ctx context.Context) answer {
	handler := func(ctx context.Context, _ map[string]any) (*attempt, error) { return r.attempt(ctx) }
	return answerOf(resilience.Wrap(r.guard.Guard, r.tool, handler, r.options()...)(ctx, r.args()))
}

func all(ctx context.Context, rs []*record) []answer {
	var calls []resilience.Call[*attempt]
	for _, r := range rs {
		calls = append(calls, resilience.Call[*attempt]{Tool: r.tool, Args: r.args(), Func: r.function()})
	}
	return resilience.All(ctx, rs[0].guard.Guard, calls...)
}

func answerOf(value *attempt, err error) answer {
	if err == nil {
		return answer{Value: value}
	}
	return answer{Value: value, Err: err.(*resilience.Error)}
}

func (r *record) args() map[string]any { return map[string]any{"password": "hunter2", "tool": r.tool} }

func (r *record) options() (opts []resilience.Option) {
	if r.timeout != 0 {
		opts = append(opts, resilience.Timeout(r.timeout))
	}
	if r.debug {
		opts = append(opts, resilience.Debug(), resilience.Args(r.args()))
	}
	return opts
}

func (r *record) function() func(context.Context) (*attempt, error) {
	if r.noFunc {
		return nil
	}
	return r.attempt
}

// call calls a tool inside of this call, if there is room and it isn't two calls deep already.
func (a *attempt) call(ctx context.Context, g *soakGuard, tool string) error {
	if a.parent != nil && a.parent.parent != nil || !g.enter(0) {
		return nil
	}

	r := g.newRecord(a.dice, tool, a.record)
	g.call(ctx, a.dice, []*record{r})
	a.noEffect = r.didNothing()
	return r.err()
}

func (g *soakGuard) other() *soakGuard {
	if g == g.guards[0] {
		return g.guards[1]
	}
	return g.guards[0]
}

// didNothing reports whether the last attempt certainly had no effect.
func (r *record) didNothing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.begun()
	return n > 0 && r.attempts[n-1].over && r.attempts[n-1].noEffect
}

// extend lets the call and those around it take longer, by a pause and the timeout that begins after it.
func (a *attempt) extend(pause time.Duration) {
	for r := a.record; r != nil; r = r.parent {
		r.mu.Lock()
		r.extended += pause + max(r.config.Timeout, r.config.MaxTimeout)
		r.mu.Unlock()
	}
}
