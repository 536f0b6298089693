package redisfleet

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	redisserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// A wire is a server of the protocol in fake time, without a network.
type wire struct {
	*miniredis.Miniredis
	client *redis.Client

	mu       sync.Mutex
	received map[string]int // commands, also those of scripts
	errors   map[string]string
	silent   map[string]bool // commands that are never answered
	reply    string          // of every script, unless it is empty
}

func newWire(t *testing.T) *wire {
	w := &wire{
		Miniredis: miniredis.NewMiniRedis(),
		received:  make(map[string]int), errors: make(map[string]string), silent: make(map[string]bool),
	}
	w.client = redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379", // a name would be looked up outside of fake time
		Dialer: func(context.Context, string, string) (net.Conn, error) { return w.Dial() },
	})
	require.NoError(t, w.client.Ping(t.Context()).Err())
	w.Server().SetPreHook(w.receive)
	t.Cleanup(func() {
		w.client.Close()
		w.Close()
	})
	return w
}

// receive reports whether a command has been dealt with.
func (w *wire) receive(p *redisserver.Peer, command string, _ ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.received[command]++
	switch {
	case w.errors[command] != "":
		p.WriteError(w.errors[command])
	case w.reply != "" && strings.HasPrefix(command, "EVAL"):
		p.WriteBulk(w.reply)
	default:
		return w.silent[command]
	}
	return true
}

// count returns how many commands there were since it was asked last.
func (w *wire) count() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.received
	w.received = make(map[string]int)
	return before
}

// deny lets a command fail, unless the error is empty.
func (w *wire) deny(command, err string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors[command] = err
}

// answer sets what every script replies, unless the reply is empty.
func (w *wire) answer(reply string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply = reply
}

func (w *wire) silence(command string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent[command] = true
}

// A member that lacks a right learns of it when it joins, rather than when a backend fails.
func TestJoinIsRefusedWithoutARight(t *testing.T) {
	for _, command := range []string{"PING", "EXISTS", "DEL", "PUBLISH", "SUBSCRIBE", "EVALSHA", "EVAL"} {
		t.Run(command, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				denied := "NOPERM this user has no permissions to run the command " + command
				w.deny(command, denied)
				_, err := Join(t.Context(), w.client, newGuard(t, io.Discard), Config{Namespace: "test"})
				require.ErrorContains(t, err, denied)

				w.deny(command, "")
				f, err := Join(t.Context(), w.client, newGuard(t, io.Discard), Config{Namespace: "test"})
				require.NoError(t, err)
				require.NoError(t, f.Leave(t.Context()))
			})
		})
	}
}

func TestCommandsOfAHealthyMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		f, err := Join(t.Context(), w.client, newGuard(t, io.Discard), Config{Namespace: "test"})
		require.NoError(t, err)
		defer f.Leave(t.Context())
		time.Sleep(10 * time.Second)
		w.count()
		time.Sleep(10 * time.Minute)
		got := w.count()
		require.InDelta(t, 10*60, got["PING"], 10)
		require.GreaterOrEqual(t, got["EVALSHA"], 10*60)
		require.Less(t, got["EVALSHA"], 10*60*3/2)
		for _, once := range []string{"EVAL", "EXISTS", "DEL", "PUBLISH", "SUBSCRIBE", "HELLO"} {
			require.Zero(t, got[once], once)
		}
	})
}

// A server that falls silent doesn't end the connection for messages.
func TestListenerNoticesASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		s := newRedisStore(w.client, "test", "member-1")
		l := &heardAll{subscriptions: make(chan struct{}, 100), entries: make(chan entry, 10)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.listen(ctx, l) }()

		time.Sleep(time.Minute + heartbeat/2) // between two pings
		require.Equal(t, 1, w.count()["SUBSCRIBE"], "it answers pings")
		w.silence("PING")
		time.Sleep(2*heartbeat + retry)
		require.Equal(t, 1, w.count()["SUBSCRIBE"])
		require.Len(t, l.subscriptions, 2, "messages may have been lost")
		_, err := s.isolate(t.Context(), "listed/search", "moving house")
		require.NoError(t, err)
		require.Equal(t, "isolated", (<-l.entries).State)

		time.Sleep(time.Minute)
		require.InDelta(t, time.Minute/(2*heartbeat+retry), w.count()["SUBSCRIBE"], 2)
		require.LessOrEqual(t, w.Server().ClientsLen(), 2, "what has fallen silent is closed")
		cancel()
		start := time.Now()
		<-done
		require.Equal(t, start, time.Now())
	})
}

// TestServersErrors lets a server refuse everything, or reply what can't be understood.
func TestErrorsOfAServer(t *testing.T) {
	for want, breaks := range map[string]func(w *wire){
		"LOADING":           func(w *wire) { w.SetError("LOADING Redis is loading the dataset in memory") },
		"invalid character": func(w *wire) { w.reply = "no JSON" },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t)
				breaks(w)
				s := newRedisStore(w.client, "test", "member-1")
				ctx, b := t.Context(), resilience.FleetBreaker{ID: "listed/search"}
				for op, do := range map[string]func() error{
					"sync":    func() error { _, err := s.sync(ctx, memory{}); return err },
					"list":    func() error { _, err := s.list(ctx, "0"); return err },
					"read":    func() error { _, err := s.read(ctx, []string{b.ID}); return err },
					"failure": func() error { _, err := s.failure(ctx, b, 1, 2, false); return err },
					"lease":   func() error { _, err := s.lease(ctx, b, resilience.CauseCalls); return err },
					"isolate": func() error { _, err := s.isolate(ctx, b.ID, ""); return err },
					"reset":   func() error { _, err := s.reset(ctx, b.ID); return err },
					"restore": func() error { _, err := s.restore(ctx, b, "", 0); return err },
					"compare": func() error { _, err := s.compare(ctx, nil); return err },
					"leave":   func() error { return s.leave(ctx) },
				} {
					require.ErrorContains(t, do(), want, op)
				}
			})
		})
	}
}

// A hook or a proxy may mix up replies. None passes for that to another command.
func TestRepliesToOtherCommands(t *testing.T) {
	w := newWire(t)
	s, b := newRedisStore(w.client, "test", "member-1"), resilience.FleetBreaker{ID: "listed/search"}
	success := news{op: "success", breaker: b}
	syncs := func() error { _, err := s.sync(t.Context(), memory{}); return err }
	lists := func() error { _, err := s.list(t.Context(), "1"); return err }
	reads := func() error { _, err := s.read(t.Context(), []string{b.ID}); return err }
	tells := func() error { _, err := s.tell(t.Context(), success, success); return err }
	isolates := func() error { _, err := s.isolate(t.Context(), b.ID, ""); return err }
	for _, c := range []struct {
		do    func() error
		reply string
		fits  bool
	}{
		{syncs, "{}", false},
		{syncs, "[{}]", false},
		{syncs, `{"since": "1.2"}`, false},
		{syncs, `{"since": "1.2", "now": 1}`, false},
		{syncs, `{"since": "1.2", "now": 1, "complete": true}`, true},
		{syncs, `{"since": "1.2", "now": 1, "page": {"next": "0"}}`, true},
		{lists, "{}", false},
		{lists, `{"ids": ["listed/search"], "next": "0"}`, false},
		{lists, `{"since": "1.2", "ids": ["listed/search"], "next": "0"}`, true},
		{reads, `[{"id": "listed/fetch"}]`, false},
		{reads, `[{"id": "listed/search"}]`, true},
		{reads, "[]", true}, // it is closed by now
		{tells, "null", false},
		{tells, `[{"id": "listed/search"}]`, false},
		{tells, `[{"id": "listed/search"}, {"id": "listed/fetch"}]`, false},
		{tells, `[{"id": "listed/search"}, {"id": "listed/search"}, {"id": "listed/search"}]`, false},
		{tells, `[{"id": "listed/search"}, {"id": "listed/search"}]`, true},
		{isolates, "{}", false},
		{isolates, `{"id": "listed/search"}`, true},
		{func() error { _, err := s.reset(t.Context(), b.ID); return err }, "null", false},
		{func() error { _, err := s.tell(t.Context(), news{op: "renew", breaker: b}); return err }, "[{}]", true},
	} {
		w.answer(c.reply)
		if err := c.do(); c.fits {
			require.NoError(t, err, c.reply)
		} else {
			require.ErrorIs(t, err, errMixedUp, c.reply)
		}
	}
}

// A member that comes back while replies are mixed up is one that can't reach Redis.
func TestMemberWhoseRepliesAreMixedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		g := newGuard(t, io.Discard)
		for range 5 {
			_, _ = resilience.Do(t.Context(), g, "search", func(context.Context) (int, error) { return 0, errBackend })
		}
		w.answer("[{}, {}, {}]")
		f, err := Join(t.Context(), w.client, g, Config{Namespace: "test"})
		require.NoError(t, err)
		require.ErrorIs(t, f.Health().Error, errMixedUp)

		w.answer("")
		time.Sleep(heartbeat)
		require.True(t, f.Health().Connected)
		require.NoError(t, f.Leave(t.Context()))
	})
}

// A message that isn't the fleet's does no harm, also before the member has heard of anything.
func TestStrangeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		w.silence("EVALSHA")
		g := newGuard(t, io.Discard)
		f, err := Join(t.Context(), w.client, g, Config{Namespace: "test"})
		require.NoError(t, err)
		for _, text := range []string{"", "null", "{}", "[]", `{"id": 1}`, `{"id": "listed/x", "state": "open"}`} {
			w.Publish("resilience:{test}", text)
			synctest.Wait()
		}
		require.Equal(t, resilience.StateClosed, g.Breaker("search").State())
		time.Sleep(time.Second)
		require.NoError(t, f.Leave(t.Context()))
	})
}
