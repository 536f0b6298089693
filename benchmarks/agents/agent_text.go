package agents

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

var inSeconds = regexp.MustCompile(`(\d+)(?: more)? seconds?`)

// readText is an agent that reads the text of a failed result and nothing else.
//
//   - It waits as long as the text asks for. A text that doesn't tell makes it wait
//     2s, then twice as long each time, up to 30s, and one that says "at once" makes it wait 30s.
//   - If the text says to check, and it was a write that failed, it checks before it writes again.
//   - If the text says not to repeat this call, it gives up.
//   - If the text says not to call this tool for a time, or to use others, it avoids the tool until then, and goes
//     on with what needs other tools.
func readText(f failure) decision {
	text := strings.ToLower(f.text)
	d := decision{do: again, after: doubling(f.tries), avoid: avoids(f.text)}
	if m := inSeconds.FindStringSubmatch(f.text); m != nil {
		seconds, _ := strconv.Atoi(m[1])
		d.after = time.Duration(seconds) * time.Second
	}

	switch {
	case strings.Contains(text, "do not repeat this call"):
		d.do = giveUp
	case strings.Contains(text, "check") && f.step == writing:
		d.do = check
	case strings.Contains(text, "at once"):
		d.after = longestDelay
	}
	return d
}

// avoids reports whether a text says to use other tools for a time.
func avoids(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "do not call this tool") || strings.Contains(text, "; use others")
}

const longestDelay = 30 * time.Second

// doubling returns how long an agent waits that isn't told how long.
func doubling(tries int) time.Duration {
	return min(time.Second<<tries, longestDelay)
}
