package redisfleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However long replies take, each way, and however fast the clocks drift apart, the store's is between the times that
// the member believes, which are no further apart than the fastest reply took, and a millisecond, and what has drifted.
func TestServerClockIsAsGoodAsTheFastestReply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begun := time.Now()
		now, ahead := begun, time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "ahead"))
		drifts := rapid.Float64Range(-1, 1).Draw(t, "drifts")
		server := func(own time.Time) time.Time {
			return own.Add(ahead + time.Duration(drifts*float64(drift(own.Sub(begun)))))
		}
		takes := rapid.Custom(func(t *rapid.T) time.Duration {
			most := rapid.SampledFrom([]time.Duration{0, time.Millisecond, patience / 2}).Draw(t, "most")
			return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "takes"))
		})

		var c serverClock
		require.Zero(t, c.latest(now))
		width, gap := time.Hour, time.Duration(0) // since the last reply
		for range rapid.IntRange(1, 10).Draw(t, "replies") {
			there, back := takes.Draw(t, "there"), takes.Draw(t, "back")
			took := there + back
			c = c.heard(server(now.Add(there)).Truncate(time.Millisecond), now, now.Add(took))
			width = min(width+2*drift(gap+took), took+drift(took)+time.Millisecond) + time.Microsecond
			gap = rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "gap")
			now = now.Add(took + gap)

			slack := drift(gap) + time.Microsecond
			require.False(t, c.earliest(now).After(server(now).Add(slack)))
			require.False(t, c.latest(now).Before(server(now).Add(-slack)))
			require.LessOrEqual(t, c.latest(now).Sub(c.earliest(now)), width)
			require.Zero(t, c.earliest(time.Time{}))
		}
	})
}

// A clock that is set, or that of another server, is known from its first reply on.
func TestServerClockThatIsSet(t *testing.T) {
	asked := time.Now()
	answered := asked.Add(10 * time.Millisecond)
	for _, ahead := range []time.Duration{-time.Hour, -20 * time.Millisecond, 20 * time.Millisecond, time.Hour} {
		c := serverClock{}.heard(asked, asked, answered).heard(asked.Add(ahead), asked, answered)
		require.WithinDuration(t, asked.Add(ahead), c.earliest(asked), 11*time.Millisecond, ahead)
		require.WithinDuration(t, asked.Add(ahead), c.latest(asked), 11*time.Millisecond, ahead)
	}
}

// What a member has seen keeps its order, though it knows the clock better when it tells of the later one.
func TestNewsThatIsToldByABetterClock(t *testing.T) {
	at := time.Now()
	const late = 1500 * time.Microsecond
	first := serverClock{}.heard(at.Add(late), at, at.Add(late))
	better := first.heard(at.Add(time.Second), at.Add(time.Second), at.Add(time.Second))
	failure := news{op: "failure", at: at}.by(first)
	for _, op := range []string{"success", "recovered"} {
		require.False(t, news{op: op, at: at}.by(better).at.Before(failure.at), op)
		require.Zero(t, news{op: op}.by(better).at)
	}
	require.Greater(t, first.latest(at).Sub(better.latest(at)), time.Millisecond)
	require.Equal(t, first.earliest(at), news{op: "restore", at: at}.by(first).at)
}
