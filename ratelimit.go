package resilience

import (
	"net/http"
	"regexp"
	"strings"
	"time"
)

// epoch distinguishes a time since 1970 from a time to wait: no limit lasts for decades.
const epoch = 20 * 365 * 24 * time.Hour

// exhausted matches a policy of the header RateLimit that allows no more requests, and the seconds until it does:
// "hour";r=0;t=60 or, in older drafts, limit=9, remaining=0, reset=60.
var exhausted = regexp.MustCompile(`\b(?:r|remaining)=0\b(?:\s*[;,]\s*(?:t|reset)=(\d+))?`)

// retryAfter returns how long the headers of an answer ask to wait, zero if that isn't known, and whether they ask to
// wait or a rate limit is exhausted. Of several exhausted limits, the longest counts.
func retryAfter(h http.Header) (after time.Duration, limited bool) {
	asks := h.Get("Retry-After")
	if d, ok := secondsOf(asks); ok {
		return d, true
	}
	if at, err := http.ParseTime(asks); err == nil {
		return max(time.Until(at), 0), true
	}

	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-", "X-Rate-Limit-"} {
		if h.Get(prefix+"Remaining") != "0" {
			continue
		}
		d, _ := secondsOf(h.Get(prefix + "Reset"))
		if d > epoch {
			d = max(time.Until(time.Unix(0, 0).Add(d)), 0)
		}
		return d, true
	}

	for _, policy := range exhausted.FindAllStringSubmatch(strings.Join(h.Values("RateLimit"), ","), -1) {
		d, _ := secondsOf(policy[1])
		after, limited = max(after, d), true
	}
	return after, limited
}

// secondsOf reads a number of seconds, which some servers write with a fraction.
func secondsOf(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(strings.TrimSpace(s) + "s")
	return d, err == nil && d >= 0
}
