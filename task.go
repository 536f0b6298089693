package resilience

import "cmp"

// A task is work of a tool that outlives its request, or for another reason can't be a call of a guard: it has no
// timeout and no retries, and no breaker counts it. Its caller asks the guard all the same before it begins, and when
// it has failed.

// Rejection returns the error with which g rejects calls of a tool for the time being, nil if it lets them pass: it
// was closed, or the tool's breaker or that of the call's key is isolated or open. A breaker whose cooldown has
// passed lets a call pass as its probe, so it rejects nothing here. Rejection is for work that isn't a call of g,
// such as a task of MCP. It counts nothing, reserves nothing, and Close doesn't wait for what it lets pass. Of the
// options it respects [BreakerKey] and [ForRequest].
func (g *Guard) Rejection(tool string, opts ...Option) *Error {
	o := newOptions(opts)
	tool = g.shortName(tool)
	if g.isClosed() {
		return g.rejected(tool, shuttingDownError(tool))
	}

	s := g.enter(tool, o.shared)
	defer s.leave()
	b := s.breaker
	if key := o.breakerKey(); key != "" && s != g.others && !b.isolated() {
		if k := g.enterKey(s, key); k != nil {
			defer k.leave()
			b = k.Breaker
		}
	}
	if !b.rejects() {
		return nil
	}
	return g.rejected(tool, b.rejection())
}

func (g *Guard) rejected(tool string, e *Error) *Error {
	e.Tool = tool
	g.reword(e)
	return e
}

// AsError is the function [AsError] for the error of work that isn't a call of g, such as a task of MCP: the work may
// have taken effect, so what an agent reads depends on the tool's effect, as after a call. Suggestions are those of
// the Config. Of the options it respects [ForRequest]. The error has no Details. What [ReportBackend] and [Transport]
// report during such work isn't heard: only err tells whose fault the failure is.
func (g *Guard) AsError(tool string, err error, opts ...Option) *Error {
	if err == nil {
		return nil
	}

	o := newOptions(opts)
	var d diagnosis
	d.read(err)
	d.addBlamed(&blamed{unexplained: o.unexplained}) // and if something is canceled, the work itself has done that
	d.class = d.byDefault()
	d.conclude()

	e := d.toError(g.shortName(tool), new(Error))
	if !d.noEffect {
		e.forEffect(g.effectOf(tool, o.effect), isCrash(d.err) || d.reads == ClassNeutral)
	}
	g.reword(e)
	e.seal()
	e.Details = nil
	return e
}

// effectOf returns the effect of a tool of which f may know more than the Config.
func (g *Guard) effectOf(tool string, f func() Effect) Effect {
	if s := g.listed[tool]; s != nil {
		return s.effect
	}
	return cmp.Or(askEffect(f), g.cfg.Effect)
}
