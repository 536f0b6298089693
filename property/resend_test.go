package property

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

// A sent is a request that a tool has sent.
type sent struct {
	attempt int
	method  string
	answer  answer
}

// mayHaveChanged reports whether the request may have changed something.
func (s sent) mayHaveChanged() bool {
	return s.method != http.MethodGet && !s.answer.refused() && (s.answer.err != nil || s.answer.status < 400 ||
		s.answer.status >= 500)
}

// A record is what the attempts of one call have done.
type record struct {
	sent   []sent
	starts []time.Duration // of the attempts
	ends   []time.Duration
}

// A plan is what each attempt is to send.
type plan [][]sent

func drawPlan(r *rapid.T, takes time.Duration) plan {
	answers := rapid.OneOf(
		rapid.SampledFrom([]answer{{status: 200}, {status: 204}, {status: 404}}),
		rapid.SampledFrom([]answer{{status: 429}, {err: errRefused}}), // after which anything may be retried
		troubles,
	)
	request := rapid.Custom(func(r *rapid.T) sent {
		s := sent{method: methods.Draw(r, "method"), answer: answers.Draw(r, "answer")}
		s.answer.took = takes
		return s
	})
	return rapid.SliceOfN(rapid.SliceOfN(request, 1, 3), 8, 8).Draw(r, "requests of each attempt")
}

// tool returns a tool that sends the requests of a plan, and fails.
func (rec *record) tool(p plan) toolFunc {
	begin := time.Now()
	return func(ctx context.Context) (int, error) {
		rec.starts = append(rec.starts, time.Since(begin))
		defer func() { rec.ends = append(rec.ends, time.Since(begin)) }()
		for _, s := range p[len(rec.starts)-1] {
			s.attempt = len(rec.starts)
			rec.sent = append(rec.sent, s)
			_ = send(ctx, s.method, s.answer)
		}
		return 0, errOwn
	}
}

var (
	elapsed = rapid.SampledFrom([]time.Duration{0, 1500 * time.Millisecond, 20 * time.Second})

	// takes is how long a request may take: it may use up MaxElapsed.
	takes = rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second})
)

func TestRetriesKeepTheirBounds(t *testing.T) {
	checkInBubble(t, func(r *rapid.T) {
		retry := resilience.Retry{
			MaxRetries: rapid.IntRange(-1, 6).Draw(r, "MaxRetries"),
			MaxElapsed: elapsed.Draw(r, "MaxElapsed"),
		}
		effect := effects.Draw(r, "effect")
		g := resilience.Must(resilience.New(resilience.Config{
			Tools: map[string]resilience.Tool{"x": {Effect: effect}},
			Retry: retry,
		}))

		var rec record
		p := drawPlan(r, takes.Draw(r, "each request takes"))
		got := resilience.Run(context.Background(), g, "x", rec.tool(p), behindSDK)
		if got.Err == nil || got.Attempts != len(rec.starts) {
			r.Fatalf("%d attempts, and %d in the result, with %v", len(rec.starts), got.Attempts, got.Err)
		}
		rec.check(r, retry, effect)
	})
}

// check compares a call with what a Retry and an effect allow. No retry begins later than MaxElapsed, so that
// the call takes at most so much longer than its last attempt alone.
func (rec *record) check(r *rapid.T, retry resilience.Retry, effect resilience.Effect) {
	maxRetries, maxElapsed := retry.MaxRetries, retry.MaxElapsed
	if maxRetries == 0 {
		maxRetries = 3
	}
	if maxElapsed == 0 {
		maxElapsed = 5 * time.Second
	}
	if n := len(rec.starts); n > 1+max(maxRetries, 0) {
		r.Fatalf("%d attempts", n)
	}

	for i, start := range rec.starts[1:] {
		if wait := start - rec.ends[i]; wait > time.Second {
			r.Fatalf("a retry came after %v", wait)
		}
		if start > maxElapsed {
			r.Fatalf("a retry began %v after the call", start)
		}
		if effect == resilience.ReadOnly || effect == resilience.Idempotent {
			continue
		}
		if last := rec.last(i + 1); !last.answer.refused() {
			r.Fatalf("a retry after %+v", last)
		}
		for _, s := range rec.sent {
			if s.attempt <= i+1 && s.mayHaveChanged() {
				r.Fatalf("a retry, though there was %+v", s)
			}
		}
	}
}

// last returns the last request of an attempt.
func (rec *record) last(attempt int) (last sent) {
	for _, s := range rec.sent {
		if s.attempt == attempt {
			last = s
		}
	}
	return last
}
