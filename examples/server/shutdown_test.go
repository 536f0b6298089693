//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

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

// The call in flight is answered and logged, a later one is rejected, and then the server ends.
func TestServerThatIsTerminatedAnswersWhatItHasAccepted(t *testing.T) {
	accepted, release := make(chan struct{}), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		accepted <- struct{}{}
		<-release
		fmt.Fprint(w, "fine")
	}))
	defer backend.Close()
	cmd := exec.Command(os.Args[0])
	flags := fmt.Sprintf("-debug -http 127.0.0.1:0 -allow %s -dir %s", backend.URL, t.TempDir())
	cmd.Env = append(os.Environ(), serverArgs+"="+flags)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	log := bufio.NewReader(stderr)
	started, err := log.ReadString('\n')
	require.NoError(t, err)
	endpoint := regexp.MustCompile(`mcp=(\S+)`).FindStringSubmatch(started)
	require.NotNil(t, endpoint, started)

	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: endpoint[1], DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	require.NoError(t, err)
	call := func(tool string, args map[string]any) string {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		if !assert.NoError(t, err) {
			return err.Error()
		}
		return res.Content[0].(*mcp.TextContent).Text
	}
	answer := make(chan string)
	go func() { answer <- call("fetch", map[string]any{"url": backend.URL}) }()
	<-accepted
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for !t.Failed() && !strings.Contains(call("search", map[string]any{"text": "x"}), "SHUTTING_DOWN") {
		continue // until the signal has come
	}
	close(release)
	assert.Contains(t, <-answer, "fine")
	rest, err := io.ReadAll(log)
	require.NoError(t, err)
	assert.Contains(t, string(rest), `msg="call succeeded" tool=fetch`)
	assert.NoError(t, cmd.Wait())
}
