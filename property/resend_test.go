package property

import (
	"context"
	"net/http"
	"testing"

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

// A record is what the attempts of one call have sent.
type record struct {
	attempts int
	sent     []sent
}

// drawPlan draws what each attempt is to send.
func drawPlan(r *rapid.T) [][]sent {
	answers := rapid.OneOf(
		rapid.SampledFrom([]answer{{status: 200}, {status: 204}, {status: 404}}),
		rapid.SampledFrom([]answer{{status: 429, header: "Retry-After: 1"}, {err: errRefused}}), // these had no effect
		troubles,
	)
	request := rapid.Custom(func(r *rapid.T) sent {
		return sent{method: methods.Draw(r, "method"), answer: answers.Draw(r, "answer")}
	})
	return rapid.SliceOfN(rapid.SliceOfN(request, 1, 3), 8, 8).Draw(r, "requests of each attempt")
}

// tool returns a tool that sends the requests of a plan, and fails.
func (rec *record) tool(plan [][]sent) toolFunc {
	return func(ctx context.Context) (int, error) {
		rec.attempts++
		for _, s := range plan[rec.attempts-1] {
			s.attempt = rec.attempts
			rec.sent = append(rec.sent, s)
			_ = send(ctx, s.method, s.answer)
		}
		return 0, errOwn
	}
}

// A tool that may not be repeated is retried only after attempts that have certainly changed nothing, the last of whose
// requests was refused.
func TestRetriesFollowOnlyWhatHadNoEffect(t *testing.T) {
	checkInBubble(t, func(r *rapid.T) {
		effect := effects.Draw(r, "effect")
		g := resilience.Must(resilience.New(resilience.Config{
			Tools: map[string]resilience.Tool{"x": {Effect: effect}},
			Retry: resilience.Retry{MaxRetries: rapid.IntRange(-1, 6).Draw(r, "MaxRetries")},
		}))

		var rec record
		got := resilience.Run(context.Background(), g, "x", rec.tool(drawPlan(r)), behindSDK)
		if got.Err == nil || got.Attempts != rec.attempts {
			r.Fatalf("%d attempts, and %d in the result, with %v", rec.attempts, got.Attempts, got.Err)
		}
		if effect == resilience.ReadOnly || effect == resilience.Idempotent {
			return
		}

		for i, s := range rec.sent {
			switch last := i+1 == len(rec.sent) || rec.sent[i+1].attempt > s.attempt; {
			case s.attempt == rec.attempts: // none follows
			case s.mayHaveChanged():
				r.Fatalf("a retry, though there was %+v", s)
			case last && !s.answer.refused():
				r.Fatalf("a retry after %+v", s)
			}
		}
	})
}
