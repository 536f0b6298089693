//go:build unix

package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serverArgs names the environment variable by which the test binary becomes the server.
const serverArgs = "TEST_SERVER_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(serverArgs); args != "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Every call that has come to its tool is answered and logged, and every other one is rejected.
func TestServerThatIsTerminatedUnderLoadAnswersWhatItHasAccepted(t *testing.T) {
	var accepted atomic.Int32
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		accepted.Add(1)
		time.Sleep(20 * time.Millisecond)
		fmt.Fprint(w, "fine")
	}))
	defer backend.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=-debug -http %s -allow %s -dir %s", serverArgs, addr, backend.URL, t.TempDir()))
	var log bytes.Buffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, 2*time.Minute, 10*time.Millisecond)

	var answered, rejected atomic.Int32
	var clients sync.WaitGroup
	for range 8 {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: "http://" + addr + "/mcp", DisableStandaloneSSE: true, MaxRetries: -1,
		}, nil)
		require.NoError(t, err)
		clients.Go(func() {
			for {
				res, err := session.CallTool(t.Context(), &mcp.CallToolParams{
					Name: "fetch", Arguments: map[string]any{"url": backend.URL},
				})
				if err != nil {
					return // the server is gone
				}
				if !res.IsError {
					answered.Add(1)
					continue
				}
				text := res.Content[0].(*mcp.TextContent).Text
				assert.Contains(t, text, "SHUTTING_DOWN")
				rejected.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	require.Eventually(t, func() bool { return answered.Load() > 50 }, 2*time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, cmd.Wait())
	clients.Wait()

	assert.Equal(t, accepted.Load(), answered.Load())
	succeeded := regexp.MustCompile(`msg="call succeeded" tool=fetch`).FindAllString(log.String(), -1)
	assert.Len(t, succeeded, int(accepted.Load()))
	t.Logf("%d answered, %d rejected", answered.Load(), rejected.Load())
}
