package redisfleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However long replies take, each way, and however fast the clocks drift apart, the store's is between the times that the
// member believes, which are no further apart than the fastest reply took, and a millisecond, and what has drifted.
func TestServerClockIsAsGoodAsTheFastestReply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begun := time.Now()
		now, ahead := begun, time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "ahead"))
		drift := rapid.Float64Range(-maxDrift, maxDrift).Draw(t, "drift")
		server := func(own time.Time) time.Time {
			return own.Add(ahead + time.Duration(drift*float64(own.Sub(begun))))
		}
		takes := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(patience)/2).Draw(t, "takes"))
		})

		var c serverClock
		require.Zero(t, c.latest(now))
		width := time.Hour
		for range rapid.IntRange(1, 10).Draw(t, "replies") {
			there, back := takes.Draw(t, "there"), takes.Draw(t, "back")
			c = c.heard(server(now.Add(there)).Truncate(time.Millisecond), now, now.Add(there+back))
			passed := there + back + time.Second
			now = now.Add(passed)
			width = min(width+2*time.Duration(maxDrift*float64(passed)), there+back+time.Millisecond)

			slack := time.Duration(maxDrift*float64(passed)) + time.Microsecond // since the reply
			require.False(t, c.earliest(now).After(server(now).Add(slack)))
			require.False(t, c.latest(now).Before(server(now).Add(-slack)))
			require.LessOrEqual(t, c.latest(now).Sub(c.earliest(now)), width+time.Microsecond)
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
