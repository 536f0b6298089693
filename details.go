package resilience

import "strings"

func (c *call) debug() bool { return c.options.debug || c.guard.cfg.Debug }

// present turns e into what the agent gets: with the configured suggestion, and with details
// only with debug.
func (c *call) present(e *Error) {
	c.guard.reword(e)
	e.seal()
	if c.debug() {
		e.Details = c.details(e)
	} else {
		e.Details = nil
	}
}

// reword makes the configured suggestion that of e, unless the tool has its own.
func (g *Guard) reword(e *Error) {
	if configured, ok := g.cfg.Suggestions[e.Code.worded()]; ok && e.hasOurWords() {
		e.suggest(strings.TrimSpace(configured + " " + e.caution))
	}
}

func (c *call) details(e *Error) map[string]any {
	aside := c.patient()
	d := redactMap(e.Details, &budget{aside: aside}, 0)

	d["tool"] = c.ctx.name
	d["attempt"] = c.attempts
	d["elapsed"] = formatDuration(c.duration)
	if timeout := c.ctx.clock.timeout; timeout > 0 {
		d["timeout"] = formatDuration(timeout)
	}
	if e.Err != nil {
		cause, _ := printAside(aside, func() string { return causeText(e.Err) })
		d["cause"] = truncate(Scrub(beginning(cause)))
	}
	if c.arguments != nil {
		d["arguments"] = c.arguments // redacted before the tool ran
	}
	return d
}

// beginning returns as much of a text as is scrubbed before it is truncated. It is longer than what stays, so that a
// secret at the end of that is found whole.
func beginning(text string) string {
	const maxScrubbed = 4096
	if len(text) <= maxScrubbed {
		return text
	}
	return strings.ToValidUTF8(text[:maxScrubbed], "")
}

// patient returns a function that calls functions aside. They share one patience, so that many slow ones
// take no longer than one that blocks.
func (c *call) patient() (aside func(func()) bool) {
	var p patience
	return func(f func()) bool { return p.aside(&c.guard.printing, f) }
}

// redact is Redact for any value, whose methods may block.
func (c *call) redact(v any) any { return redactValue(v, &budget{aside: c.patient()}, 1) }
