package redisfleet

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestScriptDoesWhatTheModelDoes lets members do anything with the script and with the model, and compares the
// replies. What the tests of the fleet show with the model then holds for Redis, too.
func TestScriptDoesWhatTheModelDoes(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	require.NoError(t, flag.Set("rapid.steps", fmt.Sprint(steps)))
	if testing.Short() { // as for each mutant, whose failures aren't repeated
		require.NoError(t, flag.Set("rapid.nofailfile", "true"))
	}
	rapid.Check(t, func(t *rapid.T) { compareWithModel(t, server, client) })
}

func compareWithModel(t *rapid.T, server *miniredis.Miniredis, client redis.UniversalClient) {
	now := time.UnixMilli(1_700_000_000_000)
	server.FlushAll()
	server.SetTime(now)
	m := newModel()
	m.now = func() time.Time { return now }

	pass := func(d time.Duration) {
		now = now.Add(d)
		server.SetTime(now)
		server.FastForward(d - time.Nanosecond) // it forgets what expires now, and Redis a millisecond later
	}

	const members = 3
	var scripts, models [members]store
	for i := range members {
		id := fmt.Sprint("member-", i)
		scripts[i], models[i] = newRedisStore(client, "test", id), m.store(id)
	}

	ctx := context.Background()
	known := [members][2]memory{}
	drawMember := rapid.IntRange(0, members-1)
	drawID := rapid.SampledFrom([]string{"listed/a", "listed/a", "listed/a/key"})
	same := func(name string, do func(s store) (any, error)) {
		i := drawMember.Draw(t, "member")
		script, err := do(scripts[i])
		require.NoError(t, err, name)
		model, err := do(models[i])
		require.NoError(t, err, name)
		require.Equal(t, anonymous(model), anonymous(script), "%s of member %d", name, i)
	}
	drawInterval := rapid.SampledFrom([]time.Duration{2 * time.Second, 3001 * time.Millisecond, 20 * time.Second})
	breaker := func() resilience.FleetBreaker {
		return resilience.FleetBreaker{
			ID:         drawID.Draw(t, "id"),
			State:      rapid.SampledFrom([]resilience.State{resilience.StateOpen, resilience.StateIsolated}).Draw(t, "state"),
			RetryAfter: time.Duration(rapid.IntRange(0, 6).Draw(t, "wait")) * time.Second,
			Config: resilience.BreakerConfig{
				Failures: 3, Cooldown: 4 * time.Second, ProbeInterval: drawInterval.Draw(t, "interval"),
				ProbeTimeout: 9 * time.Second,
			},
		}
	}
	drawAge := rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, time.Minute, -time.Second})
	drawAfter := rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, time.Minute, -time.Second})
	drawCause := rapid.SampledFrom([]resilience.Cause{resilience.CauseCalls, resilience.CauseProbe})
	drawHeard := func(t *rapid.T) int64 { // all or nothing, mostly
		return rapid.SampledFrom([]int64{0, 1, m.version, m.version}).Draw(t, "heard")
	}
	drawApart := func(t *rapid.T) int64 { // from nothing, mostly
		all := []int64{0, 0, 0, 1}
		for _, b := range m.breakers {
			all = append(all, b.row)
		}
		slices.Sort(all)
		return rapid.SampledFrom(all).Draw(t, "apart")
	}
	drawNews := func(t *rapid.T, op string) news {
		n := news{
			op: op, breaker: breaker(), cause: drawCause.Draw(t, "cause"), probe: rapid.Bool().Draw(t, "probe"),
			n: rapid.IntRange(1, 4).Draw(t, "n"), heard: drawHeard(t), apart: drawApart(t), quorum: 2,
			after:  time.Duration(rapid.IntRange(0, 3).Draw(t, "asks for")) * time.Second,
			reason: "maintenance", older: rapid.Int64Range(0, 20).Draw(t, "older"),
		}
		if rapid.Bool().Draw(t, "says when") {
			n.at = m.time().Add(-drawAge.Draw(t, "age"))
		}
		if rapid.Bool().Draw(t, "says since when") {
			n.opened = m.time().Add(-drawAge.Draw(t, "age of the opening"))
		}
		if rapid.Bool().Draw(t, "has succeeded") {
			n.breaker.Succeeded = m.time().Add(-drawAfter.Draw(t, "after"))
		}
		return n
	}
	drawOp := rapid.SampledFrom([]string{"failure", "success", "recovered", "renew", "restore", "reclose"})
	tell := func(op string) func(t *rapid.T) {
		return func(t *rapid.T) {
			n := drawNews(t, op)
			same(op, func(s store) (any, error) { return s.tell(ctx, n) })
		}
	}

	t.Repeat(map[string]func(*rapid.T){
		"time passes": func(t *rapid.T) {
			pass(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
		},
		"the clock is set back": func(t *rapid.T) {
			sync := func(s store) (any, error) { // so that no time is lost, in which miniredis forgets
				_, err := s.sync(ctx, memory{})
				return nil, err
			}
			same("sync", sync)
			now = now.Add(-time.Duration(rapid.IntRange(1, 100_000).Draw(t, "ms")) * time.Millisecond)
			server.SetTime(now)
			same("sync", sync)
		},
		"half a day passes": func(t *rapid.T) {
			same("sync", func(s store) (any, error) { // without any member, the version would be forgotten, too
				_, err := s.sync(ctx, memory{})
				return nil, err
			})
			pass(keep / 2)
		},
		"sync": func(t *rapid.T) {
			i := drawMember.Draw(t, "member")
			script, err := scripts[i].sync(ctx, known[i][0])
			require.NoError(t, err)
			model, err := models[i].sync(ctx, known[i][1])
			require.NoError(t, err)
			known[i] = [2]memory{script.memory, model.memory}
			require.ElementsMatch(t, model.Page.IDs, script.Page.IDs)
			require.Equal(t, model.Page.Next, script.Page.Next)
			require.Equal(t, model.Of.Since == "", script.Of.Since == "")
			script.Page, model.Page, script.Since, model.Since, script.Of.Since, model.Of.Since = page{}, page{}, "", "", "", ""
			require.Equal(t, model, script)
		},
		"saw": func(t *rapid.T) {
			pass(time.Millisecond) // another memory has another name
			i, version := drawMember.Draw(t, "member"), rapid.Int64Range(0, 30).Draw(t, "version")
			scripts[i].saw(memory{known[i][0].Since, version})
			models[i].saw(memory{known[i][1].Since, version})
		},
		"saw another memory": func(t *rapid.T) { // which the server comes after, or not
			pass(time.Millisecond)
			i, name := drawMember.Draw(t, "member"), fmt.Sprint(rapid.IntRange(1, 20).Draw(t, "which"), ".5")
			scripts[i].saw(memory{name, 1})
			models[i].saw(memory{name, 1})
			_, err := scripts[i].sync(ctx, memory{})
			require.NoError(t, err)
			_, err = models[i].sync(ctx, memory{})
			require.NoError(t, err)
		},
		"read": func(*rapid.T) {
			same("read", func(s store) (any, error) { return s.read(ctx, []string{"listed/a", "listed/a/key", "unlisted/none"}) })
		},
		"failure":   tell("failure"),
		"success":   tell("success"),
		"recovered": tell("recovered"),
		"renew":     tell("renew"),
		"restore":   tell("restore"),
		"reclose":   tell("reclose"),
		"tell": func(t *rapid.T) {
			first, second := drawNews(t, drawOp.Draw(t, "first")), drawNews(t, drawOp.Draw(t, "second"))
			same("tell", func(s store) (any, error) { return s.tell(ctx, first, second) })
		},
		"a Probe closes what opens again": func(t *rapid.T) {
			b := breaker()
			for _, op := range []string{"failure", "recovered", "failure"} {
				n := news{op: op, breaker: b, cause: drawCause.Draw(t, "cause"), n: 3, quorum: 1}
				same(op, func(s store) (any, error) { return s.tell(ctx, n) })
			}
			same("lease", func(s store) (any, error) { return s.lease(ctx, b, resilience.CauseProbe) })
		},
		"lease": func(t *rapid.T) {
			b, cause := breaker(), drawCause.Draw(t, "cause")
			same("lease", func(s store) (any, error) { return s.lease(ctx, b, cause) })
		},
		"isolate": func(t *rapid.T) {
			id := drawID.Draw(t, "id")
			same("isolate", func(s store) (any, error) { return s.isolate(ctx, id, "maintenance") })
		},
		"reset": func(t *rapid.T) {
			id := drawID.Draw(t, "id")
			same("reset", func(s store) (any, error) { return s.reset(ctx, id) })
		},
		"compare": func(t *rapid.T) {
			config := rapid.SampledFrom([]string{"listed/a 3", "listed/a 5"}).Draw(t, "config")
			same("compare", func(s store) (any, error) {
				all, err := s.compare(ctx, []string{config})
				return len(all), err
			})
		},
		"leave": func(*rapid.T) {
			same("leave", func(s store) (any, error) { return nil, s.leave(ctx) })
		},
	})
}

// anonymous returns a reply without the name of the memory.
func anonymous(reply any) any {
	switch r := reply.(type) {
	case entry:
		r.Since, r.By = "", ""
		return r
	case []entry:
		all := []entry{}
		for _, e := range r {
			all = append(all, anonymous(e).(entry))
		}
		return all
	}
	return reply
}

// What members mention is kept, though nothing changes for days, but for what agents can make any number of.
func TestWhatOutlivesQuietDays(t *testing.T) {
	server, tick, all := stores(t, 1)
	s := all[0]
	for _, id := range []string{"listed/a", "listed/a/isolated", "unlisted/isolated"} {
		_, err := s.isolate(t.Context(), id, "maintenance until Monday")
		require.NoError(t, err)
	}
	for _, id := range []string{"listed/b", "listed/b/key", "unlisted/c"} {
		b := resilience.FleetBreaker{ID: id, Config: resilience.BreakerConfig{Failures: 5}}
		_, err := s.failure(t.Context(), b, 1, 2, false)
		require.NoError(t, err)
	}
	_, err := s.reset(t.Context(), "listed/d")
	require.NoError(t, err)

	for step := range 5 {
		reply, err := s.sync(t.Context(), memory{})
		require.NoError(t, err)
		want := []string{"listed/a", "listed/a/isolated", "unlisted/isolated", "listed/b"}
		if step == 0 {
			want = append(want, "listed/d")
		}
		if step <= 1 {
			want = append(want, "listed/b/key", "unlisted/c")
		}
		require.ElementsMatch(t, want, reply.Page.IDs)
		breakers, err := s.read(t.Context(), reply.Page.IDs)
		require.NoError(t, err)
		require.Len(t, breakers, len(want))
		tick(keep * 3 / 4)
		server.FastForward(keep * 3 / 4)
	}
}
