package redisfleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// An operator may restore an older backup first, and then a newer one, which has an isolation that was reset since. All
// members were there all the time, and know that.
func TestOlderBackupThenANewerOne(t *testing.T) {
	for name, between := range map[string]func(*testing.T, []*server){
		"nothing between": func(*testing.T, []*server) {},
		"another opening": func(t *testing.T, all []*server) {
			all[0].open("search")
			all[0].guard.Breaker("search").Reset()
			require.NoError(t, all[0].call())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				all := servers(t, m, 3, nil)
				defer leaveAll(t, all)
				time.Sleep(absence)
				all[0].fail() // so that the memory has a version
				require.NoError(t, all[0].call())

				older := m.snapshot()
				require.NoError(t, all[0].fleet.Isolate(t.Context(), "search", "moving house"))
				time.Sleep(time.Minute)
				newer := m.snapshot()
				require.NoError(t, all[0].fleet.Reset(t.Context(), "search"))
				time.Sleep(10 * time.Minute)

				failOver(all, older)
				time.Sleep(10 * time.Minute)
				requireAll(t, all, resilience.StateClosed)
				between(t, all)
				time.Sleep(time.Minute)

				failOver(all, newer)
				time.Sleep(10 * time.Second)
				requireAll(t, all, resilience.StateClosed)
				require.Equal(t, "closed", m.breaker("listed/search").State)
			})
		})
	}
}
