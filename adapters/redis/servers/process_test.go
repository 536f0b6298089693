package servers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed8d1e2389/resilience"
	redisfleet "github.com/seed8d1e2389/resilience/adapters/redis"
	"github.com/stretchr/testify/require"
)

// These make the test binary a member that calls its backend all the time, until its input ends.
const (
	childRedis   = "FLEET_TEST_REDIS"
	childBackend = "FLEET_TEST_BACKEND"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(childRedis); addr != "" {
		child(addr, os.Getenv(childBackend))
		return
	}
	os.Exit(m.Run())
}

func child(addr, backend string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	guard := resilience.Must(resilience.New(resilience.Config{
		Breaker: resilience.BreakerConfig{Cooldown: time.Second},
		Retry:   resilience.Retry{MaxRetries: -1},
		Tools:   map[string]resilience.Tool{"search": {Effect: resilience.ReadOnly}},
	}))
	client := redis.NewClient(&redis.Options{Addr: addr})
	_, err := redisfleet.Join(context.Background(), client, guard, redisfleet.Config{Namespace: "test"})
	fmt.Println("joined", err)
	for {
		_, _ = resilience.Do(context.Background(), guard, "search", func(ctx context.Context) (string, error) {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(backend, "/", os.Getpid()), nil)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return "", err
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return "", fmt.Errorf("%s", res.Status)
			}
			return "found", nil
		})
		time.Sleep(10 * time.Millisecond)
	}
}

// startChild starts a process that is a member, and returns when it has joined.
func startChild(t *testing.T, s *server, backend string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRedis+"="+s.addr, childBackend+"="+backend)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "joined <nil>\n", line)
	return cmd
}

// TestProberIsKilled ends the process that sends the probe by kill -9. Another one sends it when the lease has
// expired, and the dead one is forgotten.
func TestProberIsKilled(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var mode atomic.Value // what the backend does
	mode.Store("fails")
	probes, hang := make(chan string, 100), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch mode.Load() {
		case "fails":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "hangs":
			probes <- r.URL.Path
			<-hang
		}
	}))
	defer backend.Close()
	defer close(hang)

	watch := newMember(t, nil, resilience.BreakerConfig{Cooldown: time.Hour}).join(newClient(t, s.addr))
	children := make(map[string]*exec.Cmd)
	for range 3 {
		c := startChild(t, s, backend.URL)
		children[fmt.Sprint("/", c.Process.Pid)] = c
	}
	eventually(t, "the breaker is open", func() bool { return watch.state() == resilience.StateOpen })

	mode.Store("hangs")
	prober := children[<-probes]
	require.NotNil(t, prober)
	mode.Store("works")
	require.NoError(t, prober.Process.Kill())
	closed := agree(t, []*member{watch}, resilience.StateClosed)
	t.Logf("closed %s after the prober was killed", round(closed))
	eventually(t, "the dead one is forgotten", func() bool { return watch.fleet.Health().Members == 3 })
}
