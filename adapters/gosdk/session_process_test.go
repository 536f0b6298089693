package gosdk_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childEnv makes the test binary a server: "stdio", "stubborn", "silent", or an address
// for streamable HTTP.
const childEnv = "GOSDK_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		child(mode)
		return
	}
	os.Exit(m.Run())
}

// child serves tools that say on stderr when they are called: "hang" doesn't answer,
// "report" doesn't either, but says so by progress, and "pid" says who it is.
func child(mode string) {
	server := mcp.NewServer(&mcp.Implementation{Name: "child", Version: "1"}, nil)
	add := func(name string, handler mcp.ToolHandler) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := handler(ctx, req)
			fmt.Fprintln(os.Stderr, "called", name)
			if res == nil && err == nil {
				forever()
			}
			return res, err
		})
	}
	add("hang", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
	add("report", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1})
	})
	add("mute", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, os.Stdout.Close()
	})
	add("pid", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strconv.Itoa(os.Getpid())}}}, nil
	})
	switch mode {
	case "stdio":
		_ = server.Run(context.Background(), &mcp.StdioTransport{})
	case "stubborn": // it lives on without its client
		_ = server.Run(context.Background(), &mcp.StdioTransport{})
		forever()
	case "silent":
		forever()
	default:
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
		l, err := net.Listen("tcp", mode)
		if err != nil {
			fmt.Fprintln(os.Stderr, "failed", err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stderr, "listening")
		_ = http.Serve(l, handler)
	}
}

// forever is no deadlock, which would end the process.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// Children are the processes of one server, one after the other, and what they said.
type children struct {
	t      *testing.T
	said   chan string
	stderr *os.File

	mu  sync.Mutex
	all []*exec.Cmd
}

func newChildren(t *testing.T) *children {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	c := &children{t: t, said: make(chan string, 1000), stderr: w}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			c.said <- lines.Text()
		}
	}()
	t.Cleanup(func() { // after all of them have ended
		w.Close()
		<-read
		r.Close()
	})
	return c
}

// command makes the next one, which isn't started yet. It ends with ctx.
func (c *children) command(ctx context.Context, mode string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	cmd.Stderr = c.stderr
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, cmd)
	return cmd
}

func (c *children) newest() *exec.Cmd {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[len(c.all)-1]
}

// hears waits until a child has said what.
func (c *children) hears(what string) {
	c.t.Helper()
	for receive(c.t, c.said) != what {
	}
}

// An outage is a server in processes of its own that can be killed and brought back.
type outage struct {
	*children
	dial func(context.Context) (*mcp.ClientSession, error)
	kill func()
	back func()
}

func newClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
}

func stdioOutage(t *testing.T, protocol string) *outage {
	c := newChildren(t)
	gate := make(chan struct{}, 1)
	gate <- struct{}{}
	return &outage{
		children: c,
		dial: func(ctx context.Context) (*mcp.ClientSession, error) {
			select {
			case <-gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			transport := &mcp.CommandTransport{Command: c.command(ctx, "stdio"), TerminateDuration: limit}
			return newClient().Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
		},
		kill: func() { require.NoError(t, c.newest().Process.Kill()) },
		back: func() { gate <- struct{}{} },
	}
}

func httpOutage(t *testing.T, protocol string, transport mcp.StreamableClientTransport) *outage {
	c := newChildren(t)
	address := freeAddress(t)
	start := func() {
		require.NoError(t, c.command(context.Background(), address).Start())
		c.hears("listening")
	}
	kill := func() {
		cmd := c.newest()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	start()
	httpClient := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() { kill(); httpClient.CloseIdleConnections() })
	return &outage{
		children: c,
		dial: func(ctx context.Context) (*mcp.ClientSession, error) {
			transport := transport
			transport.Endpoint, transport.HTTPClient = "http://"+address, httpClient
			return newClient().Connect(ctx, &transport, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
		},
		kill: kill,
		back: start,
	}
}

// freeAddress returns an address that stays free while the server is away: its port is below
// those that systems give to connections.
func freeAddress(t *testing.T) string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000))
		if l, err := net.Listen("tcp", address); err == nil {
			require.NoError(t, l.Close())
			return address
		}
	}
}

func eachOutage(t *testing.T, f func(*testing.T, *outage)) {
	const legacy, latest = "2025-11-25", "2026-07-28"
	for name, begin := range map[string]func(*testing.T) *outage{
		"stdio":                   func(t *testing.T) *outage { return stdioOutage(t, legacy) },
		"stdio, latest":           func(t *testing.T) *outage { return stdioOutage(t, latest) },
		"http, standalone stream": func(t *testing.T) *outage { return httpOutage(t, legacy, mcp.StreamableClientTransport{}) },
		"http, stream without retries": func(t *testing.T) *outage {
			return httpOutage(t, legacy, mcp.StreamableClientTransport{MaxRetries: -1})
		},
		"http, no stream": func(t *testing.T) *outage {
			return httpOutage(t, legacy, mcp.StreamableClientTransport{DisableStandaloneSSE: true})
		},
		"http, latest without sessions": func(t *testing.T) *outage { return httpOutage(t, latest, mcp.StreamableClientTransport{}) },
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			f(t, begin(t))
		})
	}
}

func call(ctx context.Context, s *gosdk.Session, name string) (*mcp.CallToolResult, error) {
	return s.CallTool(ctx, &mcp.CallToolParams{Name: name, Meta: mcp.Meta{"progressToken": name}})
}

// The server's process is killed with calls in flight, is away, and comes back.
func TestSessionServerIsKilled(t *testing.T) {
	eachOutage(t, func(t *testing.T, o *outage) {
		s := newSession(t, o.dial, sessionConfig{Backoff: resilience.Backoff{Base: 100 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: resilience.NoJitter}})
		before, err := call(t.Context(), s, "pid")
		require.NoError(t, err)
		failed := make(chan error, 20)
		for i := range cap(failed) {
			name := []string{"hang", "report"}[i%2]
			go func() {
				_, err := call(t.Context(), s, name)
				failed <- err
			}()
		}
		for range cap(failed) / 2 {
			o.hears("called hang")
		}
		first := up(t, s)
		o.kill()
		for range cap(failed) {
			err := receive(t, failed)
			requireLost(t, err)
			assert.NotErrorIs(t, err, resilience.CodeTimeout)
		}
		for range 3 { // one may be the first to notice
			_, err = call(t.Context(), s, "pid")
			assert.Positive(t, requireLost(t, err).RetryAfter)
		}
		assert.Equal(t, resilience.ConnectionDown, s.State())

		o.back()
		require.NotSame(t, first, up(t, s))
		after, err := call(t.Context(), s, "pid")
		require.NoError(t, err)
		assert.NotEqual(t, text(t, before), text(t, after))
	})
}

// Under a guard, a call that does no harm outlasts the outage; another isn't repeated.
func TestSessionServerIsKilledUnderAGuard(t *testing.T) {
	eachOutage(t, func(t *testing.T, o *outage) {
		s := newSession(t, o.dial, sessionConfig{})
		g := resilience.Must(resilience.New(resilience.Config{
			Tools:    map[string]resilience.Tool{"read": {Effect: resilience.ReadOnly}, "create": {Effect: resilience.NonIdempotent}},
			Timeouts: map[resilience.Tier]time.Duration{resilience.Quick: limit},
			Retry:    resilience.Retry{MaxRetries: 1000},
		}))
		results := map[string]chan resilience.Result[string]{"read": make(chan resilience.Result[string], 1), "create": make(chan resilience.Result[string], 1)}
		attempts := make(chan string, 1000)
		for tool, result := range results {
			go func() {
				result <- resilience.Run(t.Context(), g, tool, func(ctx context.Context) (string, error) {
					attempts <- tool
					if resilience.Attempt(ctx) == 1 {
						_, err := call(ctx, s, "hang")
						return "", err
					}
					res, err := call(ctx, s, "pid")
					if err != nil {
						return "", err
					}
					return res.Content[0].(*mcp.TextContent).Text, nil
				})
			}()
		}
		for range results {
			o.hears("called hang")
		}
		o.kill()
		create := receive(t, results["create"])
		assert.False(t, requireLost(t, create.Err).Retryable)
		assert.Equal(t, 1, create.Attempts)
		o.back()
		read := receive(t, results["read"])
		require.Nil(t, read.Err)
		assert.NotEmpty(t, read.Value)
		assert.Greater(t, read.Attempts, 1)

		_, err := resilience.Do(t.Context(), g, "create", func(ctx context.Context) (any, error) { return call(ctx, s, "pid") })
		assert.NoError(t, err)
	})
}

// A process that goes away without anybody calling is noticed, and reaped.
func TestSessionProcessEnds(t *testing.T) {
	leavesNothing(t)
	o := stdioOutage(t, "")
	s := newSession(t, o.dial, sessionConfig{})
	first, cmd := up(t, s), o.newest()
	o.kill()
	gone(t, s, first)
	require.Eventually(t, func() bool { return first.Wait() != nil }, limit, time.Millisecond)
	assert.True(t, cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled())
	o.back()
	up(t, s)
	cmd = o.newest()
	require.NoError(t, s.Close())
	assert.True(t, cmd.ProcessState.Success(), "it was asked to end, and waited for")
}

// A process that closes its output and lives on is lost, and doesn't hold up the next.
func TestSessionStubbornProcess(t *testing.T) {
	leavesNothing(t)
	c := newChildren(t)
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient().Connect(ctx, &mcp.CommandTransport{Command: c.command(ctx, "stubborn"), TerminateDuration: time.Hour}, nil)
	}, sessionConfig{})
	old := c.newest()
	t.Cleanup(func() {
		_ = old.Process.Kill()
		_ = c.newest().Process.Kill()
	})
	first := up(t, s)
	_, err := call(t.Context(), s, "mute")
	requireLost(t, err)
	require.NotSame(t, first, up(t, s))
	assert.NoError(t, old.Process.Signal(syscall.Signal(0)), "the old one still runs")
	res, err := call(t.Context(), s, "pid")
	require.NoError(t, err)
	assert.NotEqual(t, strconv.Itoa(old.Process.Pid), text(t, res))
}

// A process that is silent at first is ended at DialTimeout, by the dial's context.
func TestSessionSilentProcess(t *testing.T) {
	leavesNothing(t)
	c := newChildren(t)
	ends := make(chan string, 100)
	var dials atomic.Int64
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		mode := "stdio"
		if dials.Add(1) == 1 {
			mode = "silent"
		}
		cmd := c.command(ctx, mode)
		cs, err := newClient().Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Hour}, nil)
		if err != nil {
			ends <- cmd.ProcessState.String()
		}
		return cs, err
	}, sessionConfig{DialTimeout: 5 * time.Second}) // the next needs less, or another after it
	_, err := call(t.Context(), s, "pid")
	require.NoError(t, err)
	assert.Contains(t, receive(t, ends), "killed")
}
