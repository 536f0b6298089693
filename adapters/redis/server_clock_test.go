package redisfleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However long replies take, each way, the member is no further from the store's clock than the fastest one took, and a
// reply that is no faster moves it by no more than it was off.
func TestServerClockIsAsGoodAsTheFastestReply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		ahead := time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "ahead"))
		server := func(own time.Time) time.Time { return own.Add(ahead) }
		takes := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(patience)/2).Draw(t, "takes"))
		})

		var c serverClock
		require.Zero(t, c.at(now))
		fastest := time.Hour
		for range rapid.IntRange(1, 10).Draw(t, "replies") {
			there, back := takes.Draw(t, "there"), takes.Draw(t, "back")
			before := c
			c = c.heard(server(now.Add(there)).Truncate(time.Millisecond), now, now.Add(there+back))
			if !before.own.IsZero() {
				require.WithinDuration(t, before.at(now), c.at(now), fastest+time.Millisecond)
			}
			fastest = min(fastest, there+back)
			now = now.Add(there + back + time.Second)
			require.WithinDuration(t, server(now), c.at(now), fastest+time.Millisecond)
			require.True(t, c.at(now).Before(c.at(now.Add(1))))
			require.Zero(t, c.at(time.Time{}))
		}
	})
}

// A clock that is set, or that of another server, is known from its first reply on.
func TestServerClockThatIsSet(t *testing.T) {
	asked := time.Now()
	answered := asked.Add(10 * time.Millisecond)
	for _, ahead := range []time.Duration{-time.Hour, -20 * time.Millisecond, 20 * time.Millisecond, time.Hour} {
		c := serverClock{}.heard(asked, asked, answered).heard(asked.Add(ahead), asked, answered)
		require.WithinDuration(t, asked.Add(ahead), c.at(asked), 11*time.Millisecond, ahead)
	}
}
