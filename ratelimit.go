package resilience

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// sinceEpoch distinguishes a time since 1970, in seconds, from a time to wait: no limit lasts for 16 years.
	sinceEpoch = 500_000_000

	// maxWait is the longest time that is passed on. A longer one is probably misread.
	maxWait = 24 * time.Hour

	// maxReadAhead is how much of a body is read for what it says of a rate limit.
	maxReadAhead = 4 << 10
)

// exhaustedPolicy matches a policy of the header RateLimit that allows no more requests, and the seconds until it does:
// "hour";r=0;t=60 or, in older drafts, limit=9, remaining=0, reset=60.
var exhaustedPolicy = regexp.MustCompile(`\b(?:r|remaining)=0\b(?:\s*[;,]\s*(?:t|reset)=(\d+))?`)

// retryAfter returns how long the headers of an answer ask to wait, zero if that isn't known, and whether they ask to
// wait or a rate limit is exhausted. Of several exhausted limits, the longest counts.
func retryAfter(h http.Header) (after time.Duration, limited bool) {
	if d, ok := readWait(h.Get("Retry-After")); ok {
		return d, true
	}

	for name, values := range h { // X-RateLimit-Remaining, RateLimit-Remaining, X-Rate-Limit-Remaining-Tokens, ...
		if strings.Contains(name, "imit-Remaining") && values[0] == "0" {
			d, _ := readWait(h.Get(strings.Replace(name, "Remaining", "Reset", 1)))
			after, limited = max(after, d), true
		}
	}
	for _, policy := range exhaustedPolicy.FindAllStringSubmatch(strings.Join(h.Values("RateLimit"), ","), -1) {
		d, _ := readWait(policy[1])
		after, limited = max(after, d), true
	}
	return after, limited
}

// readWait reads how long to wait. Servers write seconds, a duration such as 1m30s, a date, or the seconds or
// milliseconds since 1970.
func readWait(s string) (wait time.Duration, ok bool) {
	s = strings.TrimSpace(s)
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		wait, err = time.ParseDuration(s)
		for _, layout := range []string{http.TimeFormat, time.RFC1123Z, time.RFC850, time.RFC3339} {
			if at, wrong := time.Parse(layout, s); wrong == nil {
				wait, err = max(time.Until(at), 0), nil
			}
		}
	case n > 1000*sinceEpoch:
		wait = max(time.Until(time.UnixMilli(int64(n))), 0)
	case n > sinceEpoch:
		wait = max(time.Until(time.Unix(int64(n), 0)), 0)
	default:
		wait = time.Duration(n * float64(time.Second))
	}

	if wait > maxWait {
		wait = 0
	}
	return wait, err == nil && wait >= 0
}

// saysLimited reports whether the body of an answer speaks of a rate limit. Nothing else tells of GitHub's secondary
// limits. The part of the body that is read is put back.
func saysLimited(res *http.Response) bool {
	if res.Body == nil {
		return false
	}

	var head bytes.Buffer
	_, _ = io.CopyN(&head, res.Body, maxReadAhead) // the reader of the body will meet the error again
	said := bytes.Contains(bytes.ToLower(head.Bytes()), []byte("rate limit"))
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&head, res.Body), res.Body}
	return said
}
