package agents

import (
	"strings"
	"time"
)

// obey is an agent whose host gives it the guidance of a failure: its code, whether the call may be made again, when,
// and the suggestion. It does what that says.
//
//   - If the suggestion is to check, and it was a write that failed, it checks before it writes again.
//   - If the call isn't retryable, it gives up.
//   - Otherwise it waits until retryAfter has passed or, if that isn't known, 2s, then twice as long each time, up to
//     30s. If the suggestion is to use other tools before that, it avoids the tool meanwhile, and goes on with
//     what needs other tools.
//
// Without guidance it reads the text.
func obey(f failure) decision {
	g := f.guidance
	if g == nil {
		return readText(f)
	}

	d := decision{do: again, after: time.Duration(g.RetryAfter * float64(time.Second))}
	if d.after == 0 {
		d.after = doubling(f.tries)
	}
	d.avoid = avoids(g.Suggestion)
	switch {
	case f.step == writing && strings.Contains(g.Suggestion, "check"):
		d.do = check
	case !g.Retryable:
		d.do = giveUp
	}
	return d
}
