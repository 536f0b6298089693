package resilience

import "time"

// maxScrubbed bounds the work for a cause. It is longer than the part that agents read, so that a secret at the end of
// that part is found whole.
const maxScrubbed = 4096

func (e *entry) debug() bool { return e.opts.debug || e.guard.cfg.Debug }

// present turns err into the error that the agent reads: with the configured suggestion, and with details only with
// debug.
func (e *entry) present(err *Error, attempts int) {
	if configured := e.guard.cfg.Suggestions; len(configured) > 0 {
		err.suggest(configured)
	}
	if !e.debug() {
		err.Details = nil
		return
	}

	d := redactMap(err.Details, 0)
	d["tool"] = e.tool
	d["attempt"] = attempts
	d["elapsed"] = formatDuration(time.Since(e.start))
	if e.state != nil {
		d["timeout"] = formatDuration(e.limits.timeout)
	}
	if err.Err != nil {
		text := causeText(err.Err)
		d["cause"] = truncate(e.guard.Scrub(text[:min(len(text), maxScrubbed)]))
	}
	if e.arguments != nil {
		d["arguments"] = e.arguments // redacted before the tool ran
	}
	err.Details = d
}
