package servers_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// An outage is a way in which Redis can't be used.
type outage struct {
	name       string
	begin, end func(t *testing.T, s *server, p *toxiproxy.Proxy)
}

// toxic returns an outage by toxiproxy.
func toxic(name, kind, attributes string) outage {
	return outage{
		name: name,
		begin: func(t *testing.T, _ *server, p *toxiproxy.Proxy) {
			for _, stream := range []string{"upstream", "downstream"} {
				json := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": {%s}}`, stream, kind, stream, attributes)
				_, err := p.Toxics.AddToxicJson(strings.NewReader(json))
				require.NoError(t, err)
			}
		},
		end: func(_ *testing.T, _ *server, p *toxiproxy.Proxy) { p.Toxics.ResetToxics(context.Background()) },
	}
}

// configured returns an outage by what the server is told.
func configured(name string, begin, end []any) outage {
	tell := func(words []any) func(*testing.T, *server, *toxiproxy.Proxy) {
		return func(_ *testing.T, s *server, _ *toxiproxy.Proxy) { s.do(words...) }
	}
	return outage{name: name, begin: tell(begin), end: tell(end)}
}

var outages = []outage{
	toxic("500ms slow", "latency", `"latency": 500`),
	toxic("5s slow", "latency", `"latency": 5000`),
	toxic("silent", "timeout", `"timeout": 0`),
	toxic("reset", "reset_peer", `"timeout": 0`),
	{
		name:  "cut",
		begin: func(_ *testing.T, _ *server, p *toxiproxy.Proxy) { p.Stop() },
		end:   func(t *testing.T, _ *server, p *toxiproxy.Proxy) { require.NoError(t, p.Start()) },
	},
	{
		name:  "killed",
		begin: func(_ *testing.T, s *server, _ *toxiproxy.Proxy) { s.kill() },
		end:   func(_ *testing.T, s *server, _ *toxiproxy.Proxy) { s.start() },
	},
	{
		name:  "frozen",
		begin: func(_ *testing.T, s *server, _ *toxiproxy.Proxy) { s.freeze() },
		end:   func(_ *testing.T, s *server, _ *toxiproxy.Proxy) { s.thaw() },
	},
	configured("full memory", []any{"CONFIG", "SET", "maxmemory", 1}, []any{"CONFIG", "SET", "maxmemory", 0}),
	{
		name: "full disk",
		begin: func(t *testing.T, s *server, _ *toxiproxy.Proxy) {
			require.NoError(t, os.RemoveAll(s.dir))
			s.do("CONFIG", "SET", "save", "3600 1000000")
			s.do("BGSAVE")
			eventually(t, "saving fails", func() bool {
				return strings.Contains(s.do("INFO", "persistence"), "rdb_last_bgsave_status:err")
			})
		},
		end: func(_ *testing.T, s *server, _ *toxiproxy.Proxy) {
			s.do("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
		},
	},
	configured("read-only", []any{"REPLICAOF", "127.0.0.1", 1}, []any{"REPLICAOF", "NO", "ONE"}),
}

// newProxy returns a proxy to the server.
func newProxy(t *testing.T, s *server) *toxiproxy.Proxy {
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(api, "redis", "127.0.0.1:0", s.addr)
	require.NoError(t, p.Start())
	t.Cleanup(p.Stop)
	return p
}

// TestOutage takes Redis away from three members. Calls go on as if there were none, breakers decide alone, it is
// said once, and afterwards all members agree again.
func TestOutage(t *testing.T) {
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			p := newProxy(t, s)
			b := new(backend)
			all := joinAll(t, 3, b, resilience.BreakerConfig{Cooldown: time.Hour}, to(t, p.Listen))

			o.begin(t, s, p)
			noticed := connected(t, all, false)
			callsGoOn(t, all)
			b.broken.Store(true)
			all[0].open()
			require.Equal(t, resilience.StateClosed, all[2].state())
			all[1].open()

			o.end(t, s, p)
			reconnected := connected(t, all, true)
			agreed := reconnected + agree(t, all, resilience.StateOpen)
			b.broken.Store(false)
			subscribed := reconnected + s.subscribers(len(all))
			require.NoError(t, all[2].fleet.Reset(t.Context(), "search"))
			closed := agree(t, all, resilience.StateClosed)
			t.Logf("noticed after %s; %s after the end connected, %s agreed, %s subscribed; closed %s after Reset",
				round(noticed), round(reconnected), round(agreed), round(subscribed), round(closed))

			for _, m := range all {
				require.NoError(t, m.fleet.Health().Error)
				require.NoError(t, m.guard.Flush(t.Context()))
				require.Equal(t, []resilience.ConnectionState{resilience.ConnectionDown, resilience.ConnectionUp}, m.reported())
				require.Equal(t, 1, m.log.count("the fleet can't be reached"))
				require.Equal(t, 1, m.log.count("the fleet can be reached again"))
			}
		})
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// callsGoOn makes calls on a backend that works, and fails if they wait for Redis.
func callsGoOn(t *testing.T, all []*member) {
	start := time.Now()
	for i := range 1000 {
		_, err := resilience.Do(t.Context(), all[i%len(all)].guard, "healthy", func(context.Context) (string, error) {
			return "found", nil
		})
		require.NoError(t, err)
	}
	require.Less(t, time.Since(start), soon, "each waits 30ms")
}
