package main

// A mutant is a small change of the library that breaks a promise.
type mutant struct {
	name   string
	breaks string // a sentence
	file   string // in the root of the repository
	old    string // stands there once
	new    string
}

// mutants are those that the models must notice.
var mutants = []mutant{
	{"a timeout that doesn't end the call", "1: the call waits for a tool that ignores its context.",
		"run.go", "		case !waits || r.limit.left() <= 0:\n", "		case false:\n"},
	{"progress exceeds the maximum", "1: MaxTimeout doesn't bound the call.",
		"limits.go", "	l.due = min(add(now, l.timeout), l.latest)\n	return true\n",
		"	l.due = add(now, l.timeout)\n	return true\n"},
	{"progress has no effect", "1: a tool that makes progress is ended by its timeout.",
		"progress.go", "c.limits.progress(now)", "false"},
	{"resume adds no time", "1: the timeout doesn't restart after a pause that has lasted up to the maximum.",
		"limits.go", "l.latest = max(add(l.latest, now-l.pausedAt), add(now, l.timeout))", "l.latest = max(l.latest, now)"},

	{"a neutral probe keeps its slot", "2: a probe that is canceled leaves the breaker half-open for ever.",
		"ticket.go", "	case outcomeNeutral:\n		t.free()\n", "	case outcomeNeutral:\n"},
	{"a paused probe keeps its slot", "2: while a probe waits for a person, all other calls are rejected.",
		"progress.go", "		a.ticket.giveBack()\n", ""},
	{"a call within is another call", "2: a call within a probe of its own breaker is rejected.",
		"admit.go", "		e.joined = e.outer.ticketOf(e.breaker)\n", ""},
	{"an overdue probe isn't ended", "2: a probe that never reports keeps the slot.",
		"breaker.go", "		if p.left() < 0 {\n", "		if false {\n"},
	{"a call that is overloaded keeps its permission", "2: an OVERLOADED probe keeps the slot.",
		"admit.go", "(&ticket{admission: a}).settle(outcomeNeutral, \"\")", "_ = a"},
	{"a contended probe costs nothing", "2: a probe that calls its breaker without the context rejects itself for ever.",
		"ticket.go", "			b.extra = min(b.extra+1, maxExtra)\n			t.phase.slots++\n", ""},

	{"success counts as failure while closed", "3: a success doesn't end a row of failures.",
		"ticket.go", "	case outcomeSuccess:\n		t.report(nil)\n", "	case outcomeSuccess:\n		t.report(errNeutral)\n"},
	{"results of an earlier phase count", "3: a call from before an isolation counts after the reset.",
		"ticket.go", "	if b.phase.Load() != t.phase {\n		return false\n	}\n\n	switch o {", "	switch o {"},
	{"a ticket counts twice", "3: Only the first report counts.",
		"ticket.go", "	if t.used.Swap(true) {\n		return false\n	}\n", "	t.used.Store(true)\n"},
	{"two ends", "3: observers receive the end of a call twice.",
		"call.go", "		c.notifyEnd(e, c.current.number, counted)\n",
		"		c.notifyEnd(e, c.current.number, counted)\n		c.notifyEnd(e, c.current.number, counted)\n"},
	{"a threshold that is too high", "3: the breaker opens one failure late.",
		"breaker.go", "uint64(n.ConsecutiveFailures) >= uint64(b.cfg.Failures)",
		"uint64(n.ConsecutiveFailures) > uint64(b.cfg.Failures)"},
	{"reset keeps the failures", "3: Reset doesn't forget the failures of a closed breaker.",
		"control.go", "	b.change(b.closedPhase(), CauseManual)\n",
		"	if b.phase.Load().state != StateClosed {\n		b.change(b.closedPhase(), CauseManual)\n	}\n"},

	{"a timeout hides the cause", "4: the error that the tool has returned is lost at the timeout.",
		"call.go", "	if f.err != error(end.cause) {\n		e.addCause(f.err)\n	}\n", ""},
	{"abandoned attempts aren't capped", "5: attempts that hang pile up.",
		"tools.go", "s.overdue.Load() >= int64(g.cfg.MaxAbandoned)", "s.overdue.Load() > int64(g.cfg.MaxAbandoned)"},
	{"an abandoned attempt is counted for ever", "5: Health counts attempts that have returned.",
		"run.go", "	} else if r.late != nil {\n", "	} else if false {\n"},

	{"a caller's cancellation is a TIMEOUT", "6: a caller who leaves is told that the tool was too slow.",
		"context.go", "	if e.Code == CodeCanceled {\n", "	if false {\n"},
	{"a caller's end counts", "6: callers who leave or are in a hurry open the breaker.",
		"call.go", "	if end.byTimeout && !c.scope.hasLessTime() {\n", "	if true {\n"},

	{"a panic is success", "7: the call of a tool that panics succeeds.",
		"panic.go", "			err = panicError(p)\n", "			_ = p\n"},
	{"a panic isn't counted", "7: a tool that crashes doesn't open its breaker.",
		"meaning.go", "*m = meaning{weight: weightExplicit, class: ClassPermanent}",
		"*m = meaning{weight: weightExplicit, class: ClassNeutral}"},

	{"any effect is repeatable", "8: an ambiguous failure of any tool is retried.",
		"effect.go", "return e == ReadOnly || e == Idempotent }", "return e != NonIdempotent }"},
	{"a pause may be repeated", "8: a person is asked twice.",
		"call.go", "	if c.scope.asked.Load() {\n		return NonIdempotent\n	}\n", ""},
	{"reports don't matter", "8: a call that has changed something is repeated after a refused connection.",
		"call.go", "f.noEffect && (f.markedNoEffect || !changed)", "(f.noEffect || changed)"},
	{"calls within don't matter", "8: a call is repeated though a tool within it has done something.",
		"call.go", "		c.asRequest = newRequest(ctx, true)\n", ""},
	{"a TIMEOUT is retryable", "8: an agent is told to repeat a call that may have taken effect.",
		"call.go", "		e.forEffect(c.effect(), false)\n	}\n	c.finish(e, o)", "	}\n	c.finish(e, o)"},

	{"a delay into the deadline", "9: the call sleeps until its time is up.",
		"retry.go", "return delay < c.scope.left() && fits(c.scope.Context, delay)", "return true"},
	{"retries have no end", "A retry begins later than MaxElapsed.",
		"retry.go", "late := r.MaxElapsed >= 0 && ", "late := false && "},
	{"the breaker isn't asked again", "A retry goes to a breaker that has opened.",
		"retry.go", "return c.breaker.phase.Load().state == StateClosed && ", "return "},
	{"one retry more", "MaxRetries is exceeded.",
		"retry.go", "	if n > r.MaxRetries {\n", "	if n > r.MaxRetries+1 {\n"},
}
