// Package servers_test lets fleets use real servers of Redis: a single one, a cluster, and one with a replica and a
// sentinel. It belongs to a module of its own because of the proxy that breaks connections.
package servers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// soon is how long tests wait for what takes a second at most on an idle machine.
const soon = 30 * time.Second

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
	return startProcess(t, append([]string{
		"--save", "", "--appendonly", "no", "--enable-debug-command", "yes", "--enable-protected-configs", "yes",
	}, args...)...)
}

// startProcess starts a server, or a sentinel, with its defaults and these arguments.
func startProcess(t testing.TB, args ...string) *server {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server")
	}
	s := &server{t: t, addr: freeAddr(t), dir: t.TempDir()}
	file := filepath.Join(s.dir, "redis.conf") // which sentinels write to
	require.NoError(t, os.WriteFile(file, []byte("bind 127.0.0.1\nport "+s.port()+"\ndir "+s.dir+"\n"), 0o600))
	s.args = append([]string{"redis-server", file}, args...)
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

func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.addr)
	return port
}

// do executes a command.
func (s *server) do(words ...any) string {
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	reply, err := client.Do(context.Background(), words...).Result()
	require.NoError(s.t, err, "%q", words)
	return fmt.Sprint(reply)
}

// commands returns how often each command was called, but for INFO.
func (s *server) commands() map[string]int {
	all := make(map[string]int)
	for _, line := range strings.Split(s.do("INFO", "commandstats"), "\r\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		count, _, _ := strings.Cut(rest, ",")
		if n, err := strconv.Atoi(count); ok && err == nil && name != "info" {
			all[name] = n
		}
	}
	return all
}

// subscribers waits until n members hear messages.
func (s *server) subscribers(n int) time.Duration {
	return eventually(s.t, "all members have subscribed", func() bool {
		return s.do("PUBSUB", "NUMSUB", "resilience:{test}") == fmt.Sprintf("[resilience:{test} %d]", n)
	})
}

// newClient returns a client with all defaults.
func newClient(t testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return client
}

// freeAddr returns an address that is free now, of a port that isn't used for outgoing connections, so that a server
// gets it again when it is started again.
func freeAddr(t testing.TB) string {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
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
