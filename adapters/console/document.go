package console

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// A document is the JSON of /api/health, and of the event snapshot. The package's documentation explains its
// fields.
type document struct {
	heading
	Title    string    `json:"title"`
	Started  time.Time `json:"started"`
	Control  bool      `json:"control"`
	Step     int       `json:"step"`
	Steps    int       `json:"steps"`
	Tools    []tool    `json:"tools"`
	Breakers []breaker `json:"breakers"`
	Changes  []change  `json:"changes"`
}

// A heading is the part of a document that each event repeats.
type heading struct {
	Time   time.Time `json:"time"`
	Closed bool      `json:"closed"`
}

type tool struct {
	Tool                string           `json:"tool"`
	Listed              bool             `json:"listed"`
	Available           bool             `json:"available"`
	Breaker             string           `json:"breaker"`
	State               resilience.State `json:"state"`
	RetryAfter          int64            `json:"retryAfter,omitempty"`
	ConsecutiveFailures int              `json:"consecutiveFailures"`
	InFlight            int              `json:"inFlight"`
	Abandoned           int              `json:"abandoned"`
	LastError           *lastError       `json:"lastError,omitempty"`
	LastMinute          minute           `json:"lastMinute"`
	History             []row            `json:"history"`
}

type breaker struct {
	Breaker             string           `json:"breaker"`
	Key                 string           `json:"key,omitempty"`
	State               resilience.State `json:"state"`
	RetryAfter          int64            `json:"retryAfter,omitempty"`
	ConsecutiveFailures int              `json:"consecutiveFailures"`
	Reason              string           `json:"reason,omitempty"`
	Since               *time.Time       `json:"since,omitempty"`
	Cause               resilience.Cause `json:"cause,omitempty"`
	Tools               []string         `json:"tools"`
}

type lastError struct {
	Code    resilience.Code `json:"code"`
	Message string          `json:"message"`
	Time    time.Time       `json:"time"`
	Cause   string          `json:"cause,omitempty"`
}

// A minute is the sum of the last minute.
type minute struct {
	Succeeded uint32  `json:"succeeded"`
	Failed    uint32  `json:"failed"`
	Rejected  uint32  `json:"rejected"`
	Other     uint32  `json:"other"`
	P50       float64 `json:"p50"`
	P95       float64 `json:"p95"`
}

// A row is what happened in one step: its time in seconds since 1970, and the fields of a minute. Its JSON is an
// array, because a document has many.
type row struct {
	start int64
	minute
}

func (r row) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.start, r.Succeeded, r.Failed, r.Rejected, r.Other, r.P50, r.P95})
}

func (s *slot) minute() minute {
	n, l := &s.calls, &s.latency
	return minute{n[succeeded], n[failed], n[rejected], n[other], l.quantile(0.5), l.quantile(0.95)}
}

func (s *slot) row() row { return row{s.number * int64(step/time.Second), s.minute()} }

// document returns what is known now. It calls no code of the user's, so that c.mu may be held.
func (c *Console) document() document {
	now := time.Now()
	health := c.guard.Health()
	d := document{
		heading: heading{Time: now, Closed: c.guard.Closed()},
		Title:   c.cfg.Title,
		Started: c.started,
		Control: c.cfg.Authorize != nil,
		Step:    int(step / time.Second),
		Steps:   steps,
		Tools:   make([]tool, 0, len(health)),
	}

	for _, h := range health {
		d.Tools = append(d.Tools, c.tool(h, now))
	}
	d.Breakers = c.breakers(health)
	d.Changes = c.changes.list()
	return d
}

func (c *Console) tool(h resilience.Health, now time.Time) tool {
	r := c.calls.of(h.Tool, now)
	t := tool{
		Tool:                h.Tool,
		Listed:              h.Listed,
		Available:           h.Available,
		Breaker:             h.Breaker,
		State:               h.State,
		RetryAfter:          wholeSeconds(h.RetryAfter),
		ConsecutiveFailures: h.ConsecutiveFailures,
		InFlight:            h.InFlight,
		Abandoned:           h.Abandoned,
		LastMinute:          r.minute,
		History:             r.rows,
	}

	if e := h.LastError; e != nil {
		t.LastError = &lastError{e.Code, cut(e.Message, maxMessage), h.LastErrorTime, r.cause}
	}
	return t
}

// breakers returns the breakers by name. Of those that have the same one, it shows the worst.
func (c *Console) breakers(health []resilience.Health) []breaker {
	tools := make(map[string][]string)
	for _, h := range health {
		tools[h.Breaker] = append(tools[h.Breaker], h.Tool)
	}

	all := []breaker{}
	for _, b := range c.guard.Breakers() {
		n := c.breaker(b)
		if users := tools[baseOf(b)]; users != nil {
			n.Tools = users
		}

		last := len(all) - 1
		switch {
		case last < 0 || all[last].Breaker != n.Breaker:
			all = append(all, n)
		case severity[n.State] > severity[all[last].State]:
			all[last] = n
		}
	}
	return all
}

func (c *Console) breaker(b *resilience.Breaker) breaker {
	n := breaker{
		Breaker:             b.Name(),
		Key:                 b.Key(),
		State:               b.State(),
		RetryAfter:          wholeSeconds(b.RetryAfter()),
		ConsecutiveFailures: b.Failures(),
		Tools:               []string{},
	}

	if n.State != resilience.StateClosed {
		if change := c.changes.of(b.Name()); change != nil {
			n.Since, n.Cause, n.Reason = &change.Time, change.Cause, change.Reason
		}
	}
	if reason, isolated := b.Isolated(); isolated {
		n.Reason = reason
	}
	return n
}

// baseOf returns the name of the breaker that b is below, or its own.
func baseOf(b *resilience.Breaker) string {
	if b.Key() == "" {
		return b.Name()
	}
	return strings.TrimSuffix(b.Name(), "/"+b.Key())
}

// severity orders states.
var severity = map[resilience.State]int{
	resilience.StateHalfOpen: 1, resilience.StateIsolated: 2, resilience.StateOpen: 3,
}

// wholeSeconds rounds up, as the JSON of a Health does.
func wholeSeconds(d time.Duration) int64 { return int64(math.Ceil(max(d, 0).Seconds())) }

// cut returns at most n bytes of a text, and "…" if there are more.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
