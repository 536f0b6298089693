package redisfleet

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What one member restores after Redis has lost its memory, or the newest part of it, doesn't shut a backend that another
// one has found to work in the meantime, whoever is back first: a member that hasn't called it since knows of the opening
// alone.
func TestOpeningThatIsOverIsNotRestored(t *testing.T) {
	for _, lost := range []string{"all", "the newest part", "nothing"} {
		for _, first := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, member %d is back first", lost, first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel()
					all := servers(t, m, 2, nil)
					defer leaveAll(t, all)
					down(t, all)
					time.Sleep(31 * time.Second)
					back := m.snapshot()
					require.Error(t, all[0].call()) // a probe
					time.Sleep(time.Second)

					setDown(all, true)
					all[0].broken.Store(false)
					time.Sleep(40 * time.Second)
					for range 10 {
						require.NoError(t, all[0].call())
						time.Sleep(time.Minute)
					}
					switch lost {
					case "all":
						m.flush()
					case "the newest part":
						back()
					}
					for _, i := range []int{first, 1 - first} {
						all[i].store.down.Store(false)
						time.Sleep(2 * time.Second)
					}
					assert.Equal(t, resilience.StateClosed, all[0].state())
					assert.NoError(t, all[1].call())
				})
			})
		}
	}
}

// Nor does it if a Probe has found that out, which doesn't ask again so soon, and the other member's hasn't asked yet.
func TestOpeningThatAProbeHasEndedIsNotRestored(t *testing.T) {
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprintf("member %d is back first", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				var all []*server
				for i, interval := range []time.Duration{5 * time.Second, 20 * time.Second} {
					s := newServer(t, m, fmt.Sprint("member-", i))
					if i > 0 {
						s.broken, s.asked = all[0].broken, all[0].asked
					}
					s.start(func(c *resilience.BreakerConfig) {
						c.ProbeInterval = interval
						c.Probe = func(context.Context) error {
							if s.broken.Load() {
								return errBackend
							}
							return nil
						}
					})
					all = append(all, s)
				}
				defer leaveAll(t, all)
				down(t, all)
				setDown(all, true)
				time.Sleep(time.Second)
				all[0].broken.Store(false)
				time.Sleep(5 * time.Second)
				require.NoError(t, all[0].call())
				m.flush()
				for _, i := range []int{first, 1 - first} {
					all[i].store.down.Store(false)
					time.Sleep(time.Second)
				}
				assert.NoError(t, all[0].call())
				assert.NoError(t, all[1].call())
			})
		})
	}
}

// Two members that list the same breakers, and prolong them page by page, each find all of them.
func TestListingsOfTwoMembersMissNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		s, other := newServer(t, m, "member"), m.store("other")
		s.start(nil)
		defer leaveAll(t, []*server{s})
		time.Sleep(2 * time.Second)
		hear := s.store.deafen()
		s.store.down.Store(true)
		var ids []string
		for i := range 900 {
			id := fmt.Sprintf("listed/search/tenant-%04d", i)
			_, err := other.isolate(t.Context(), id, "moved")
			require.NoError(t, err)
			ids = append(ids, id)
			time.Sleep(time.Millisecond)
		}
		m.mu.Lock()
		m.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		m.mu.Unlock()

		pages := slices.Collect(slices.Chunk(ids, 100))
		s.store.faults.Store("list", fault{before: func(ctx context.Context) error {
			if len(pages) < 2 {
				return nil
			}
			time.Sleep(time.Millisecond)
			_, err := other.read(context.WithoutCancel(ctx), pages[1]) // the other one is a page ahead
			pages = pages[2:]
			return err
		}})
		hear()
		s.store.down.Store(false)
		time.Sleep(5 * time.Second)
		assert.Len(t, s.fleet.engine.heardOf(), len(ids))
	})
}
