//go:build unix

package redisfleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/require"
)

// soon is how long tests wait for what takes a second at most on an idle machine.
const soon = 30 * time.Second

var errBackend = resilience.MarkBackend(errors.New("503 Service Unavailable"))

// A server is a process of redis-server on the loopback interface. It ends with the test, whatever becomes of that.
type server struct {
	t    testing.TB
	addr string
	dir  string
	args []string
	life io.Closer // of the process
	pid  int
	cmd  *exec.Cmd
}

// startServer starts a server that keeps nothing on disk, with further arguments.
func startServer(t testing.TB, args ...string) *server {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server")
	}
	s := &server{t: t, addr: freeAddr(t), dir: t.TempDir()}
	_, port, _ := net.SplitHostPort(s.addr)
	s.args = append([]string{
		"redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no",
	}, args...)
	s.start()
	t.Cleanup(s.kill)
	return s
}

// start starts the process, and waits until it accepts connections. It is the child of a shell, which ends it at
// the end of its input, and so when the test ends, also if that crashes.
func (s *server) start() {
	const script = `"$@" >>"$LOG" 2>&1 & echo $!; cat >/dev/null; kill -9 $!`
	s.cmd = exec.Command("sh", append([]string{"-c", script, "sh"}, s.args...)...)
	s.cmd.Env = append(os.Environ(), "LOG="+filepath.Join(s.dir, "log"))
	life, err := s.cmd.StdinPipe()
	require.NoError(s.t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.cmd.Start())
	s.life = life

	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(s.t, err)
	s.pid, err = strconv.Atoi(strings.TrimSpace(line))
	require.NoError(s.t, err)
	eventually(s.t, "the server accepts connections", func() bool {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// kill ends the process by kill -9.
func (s *server) kill() {
	if s.life != nil {
		s.life.Close()
		_ = s.cmd.Wait()
		s.life = nil
	}
}

// freeze stops the process, with all of its connections, until thaw.
func (s *server) freeze() { require.NoError(s.t, syscall.Kill(s.pid, syscall.SIGSTOP)) }
func (s *server) thaw()   { require.NoError(s.t, syscall.Kill(s.pid, syscall.SIGCONT)) }

// do executes a command.
func (s *server) do(words ...any) string {
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	reply, err := client.Do(context.Background(), words...).Result()
	require.NoError(s.t, err, "%q", words)
	return fmt.Sprint(reply)
}

// calls returns how often commands were called, without those within scripts if none of them is.
func (s *server) calls(commands ...string) (n int) {
	for _, line := range strings.Split(s.do("INFO", "commandstats"), "\r\n") {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		count, _, _ := strings.Cut(rest, ",")
		for _, c := range commands {
			if c == name {
				calls, err := strconv.Atoi(count)
				require.NoError(s.t, err)
				n += calls
			}
		}
	}
	return n
}

// client returns a client with all defaults.
func (s *server) client() *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	s.t.Cleanup(func() { client.Close() })
	return client
}

// ports counts the ports, from a random one on: two servers never have the same one.
var ports atomic.Uint32

func init() { ports.Store(rand.Uint32N(10000)) }

// freeAddr returns an address that is free now. Its port, and the one 10,000 above it, which a cluster's server uses
// for its bus, aren't used for outgoing connections, so that a server gets them again when it is started again.
func freeAddr(t testing.TB) string {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12000+ports.Add(1)%10000)
		if l, err := net.Listen("tcp", addr); err == nil {
			require.NoError(t, l.Close())
			return addr
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// eventually waits until something is so, and returns how long that took.
func eventually(t testing.TB, what string, is func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !is() {
		if time.Since(start) > soon {
			t.Fatalf("not within %s: %s", soon, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// A backend is what the tools of all members call.
type backend struct {
	broken   atomic.Bool
	requests atomic.Int64
	ask      func() error // instead of that; nil if it isn't needed
}

// A member is a guard with the tool "search", which calls the backend.
type member struct {
	t       testing.TB
	guard   *resilience.Guard
	fleet   *Fleet
	backend *backend
	cut     atomic.Bool // its own network to the backend is broken

	mu  sync.Mutex
	log bytes.Buffer
}

// newMember returns one that hasn't joined the fleet.
func newMember(t testing.TB, c redis.UniversalClient, b *backend, breaker resilience.BreakerConfig) *member {
	m := &member{t: t, backend: b}
	var err error
	m.fleet, err = New(c, Config{Namespace: "test", Log: slog.New(slog.NewTextHandler(m, nil))})
	require.NoError(t, err)
	m.guard, err = resilience.New(m.fleet.Configure(resilience.Config{
		Breaker: breaker,
		Retry:   resilience.Retry{MaxRetries: -1},
		Tools:   map[string]resilience.Tool{"search": {Effect: resilience.ReadOnly}},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.fleet.Leave(context.Background()) })
	return m
}

// join makes the member one of the fleet.
func (m *member) join() *member {
	require.NoError(m.t, m.fleet.Join(context.Background(), m.guard))
	return m
}

// beSlow lets the member wait longer for Redis, which may be slow only because the machine is busy.
func (m *member) beSlow() *member {
	m.fleet.patience, m.fleet.store.timeout = 5*time.Second, 5*time.Second
	return m
}

// joinAll returns n members that know each other, and wait for Redis.
func joinAll(t testing.TB, n int, s *server, b *backend, breaker resilience.BreakerConfig) []*member {
	var all []*member
	client := s.client()
	for range n {
		all = append(all, newMember(t, client, b, breaker).beSlow().join())
	}
	eventually(t, "all members know of each other", func() bool {
		return every(all, func(m *member) bool { return m.fleet.Health().Members == n })
	})
	return all
}

// Write is the member's log.
func (m *member) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(p)
}

// logged returns how often the log has some words.
func (m *member) logged(words string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Count(m.log.String(), words)
}

func (m *member) search(opts ...resilience.Option) error {
	_, err := resilience.Do(context.Background(), m.guard, "search", func(context.Context) (string, error) {
		if m.cut.Load() {
			return "", errBackend
		}
		m.backend.requests.Add(1)
		if m.backend.ask != nil {
			return "", m.backend.ask()
		}
		if m.backend.broken.Load() {
			return "", errBackend
		}
		return "found", nil
	}, opts...)
	return err
}

// told waits until the member has told Redis what has happened so far.
func (m *member) told() {
	require.NoError(m.t, m.guard.Flush(context.Background()))
	eventually(m.t, "the news are told", func() bool {
		m.fleet.mu.Lock()
		defer m.fleet.mu.Unlock()
		return len(m.fleet.news) == 0
	})
	for range 2 { // the loop takes the first one when it has sent them
		m.fleet.wake <- struct{}{}
	}
}

// fail makes calls of the member fail.
func (m *member) fail(times int) {
	m.t.Helper()
	for range times {
		require.ErrorIs(m.t, m.search(), errBackend)
	}
}

func (m *member) state() resilience.State { return m.guard.Breaker("search").State() }

func every(all []*member, is func(*member) bool) bool {
	for _, m := range all {
		if !is(m) {
			return false
		}
	}
	return true
}

// agree waits until the breakers of all members are in a state.
func agree(t testing.TB, all []*member, state resilience.State) time.Duration {
	t.Helper()
	return eventually(t, "all are "+string(state), func() bool {
		return every(all, func(m *member) bool { return m.state() == state })
	})
}
