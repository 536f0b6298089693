package gosdk_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// childEnv makes the test binary a server. Its value is "stdio", "stubborn", "silent", "transfer, bare",
// "transfer, guarded", or an address for streamable HTTP.
const childEnv = "GOSDK_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		child(mode)
		return
	}
	os.Exit(m.Run())
}

func child(mode string) {
	server := newChildServer()
	switch mode {
	case "stdio":
		_ = server.Run(context.Background(), &mcp.StdioTransport{})
	case "stubborn": // it doesn't end when its client leaves
		_ = server.Run(context.Background(), &mcp.StdioTransport{})
		sleepForever()
	case "silent":
		sleepForever()
	case "transfer, bare", "transfer, guarded":
		serveTransfer(mode == "transfer, guarded")
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

// newChildServer returns a server whose tools print to stderr that they were called. Only "pid" replies:
// "hang" never does, "report" only sends progress, "mute" closes the output of the process, "half" does so within an
// answer, "print" writes to it, and "flood" too much.
func newChildServer() *mcp.Server {
	server := newServer(nil)
	add := func(name string, handler mcp.ToolHandler) {
		report := func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := handler(ctx, req)
			fmt.Fprintln(os.Stderr, "called", name)
			if res == nil && err == nil {
				sleepForever()
			}
			return res, err
		}
		addRaw(server, &mcp.Tool{Name: name}, report)
	}

	add("hang", returns(nil, nil))
	add("report", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		note := &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1}
		return nil, req.Session.NotifyProgress(ctx, note)
	})
	add("mute", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, os.Stdout.Close()
	})
	add("half", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Print(`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","te`)
		return nil, os.Stdout.Close()
	})
	add("print", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, err := fmt.Println("fetching the page")
		return nil, err
	})
	add("flood", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, err := fmt.Printf("%q\n", strings.Repeat("x", 17<<20))
		return nil, err
	})
	add("pid", returns(textResult(strconv.Itoa(os.Getpid())), nil))
	return server
}

// sleepForever doesn't end the process as a deadlock would.
func sleepForever() {
	for {
		time.Sleep(time.Hour)
	}
}

// children are the processes of one server, one after the other.
type children struct {
	t     *testing.T
	lines chan string // that the processes printed to stderr

	mu  sync.Mutex
	all []*exec.Cmd
}

func newChildren(t *testing.T) *children {
	return &children{t: t, lines: make(chan string, 1000)}
}

// A lineWriter passes on the lines that are written to it.
type lineWriter struct {
	lines chan<- string
	begun []byte // a line
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.begun = append(w.begun, b...)
	for {
		line, rest, whole := bytes.Cut(w.begun, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		w.lines <- string(line)
		w.begun = rest
	}
}

// command returns the next process, which isn't started yet. It ends with ctx.
func (c *children) command(ctx context.Context, mode string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	cmd.Stderr = &lineWriter{lines: c.lines}

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

// waitFor waits until a process has printed the line.
func (c *children) waitFor(line string) {
	c.t.Helper()
	for receive(c.t, c.lines) != line {
	}
}

// An outage is a server in processes of its own, which can be killed and restarted.
type outage struct {
	*children
	dial    func(context.Context) (*mcp.ClientSession, error)
	kill    func()
	restart func()
}

func stdioOutage(t *testing.T, protocol string) *outage {
	c := newChildren(t)
	gate := make(chan struct{}, 1)
	gate <- struct{}{}
	return &outage{
		children: c,
		dial: func(ctx context.Context) (*mcp.ClientSession, error) {
			if err := await(ctx, gate); err != nil {
				return nil, err
			}
			transport := &mcp.CommandTransport{Command: c.command(ctx, "stdio"), TerminateDuration: testTimeout}
			return newClient(nil).Connect(ctx, transport, speaking(protocol))
		},
		kill:    func() { require.NoError(t, c.newest().Process.Kill()) },
		restart: func() { gate <- struct{}{} },
	}
}

func httpOutage(t *testing.T, protocol string, transport mcp.StreamableClientTransport) *outage {
	c := newChildren(t)
	address := freeAddress(t)
	start := func() {
		require.NoError(t, c.command(context.Background(), address).Start())
		c.waitFor("listening")
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
			return newClient(nil).Connect(ctx, &transport, speaking(protocol))
		},
		kill:    kill,
		restart: start,
	}
}

// freeAddress returns an address that remains free while the server is away: its port is below those
// that systems assign to connections.
func freeAddress(t *testing.T) string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000))
		if l, err := net.Listen("tcp", address); err == nil {
			require.NoError(t, l.Close())
			return address
		}
	}
}

func eachOutage(t *testing.T, test func(*testing.T, *outage)) {
	overStdio := func(protocol string) func(*testing.T) *outage {
		return func(t *testing.T) *outage { return stdioOutage(t, protocol) }
	}
	overHTTP := func(protocol string, transport mcp.StreamableClientTransport) func(*testing.T) *outage {
		return func(t *testing.T) *outage { return httpOutage(t, protocol, transport) }
	}
	for name, begin := range map[string]func(*testing.T) *outage{
		"stdio":                         overStdio(legacy),
		"stdio, latest":                 overStdio(latest),
		"http, standalone stream":       overHTTP(legacy, mcp.StreamableClientTransport{}),
		"http, no stream":               overHTTP(legacy, mcp.StreamableClientTransport{DisableStandaloneSSE: true}),
		"http, latest without sessions": overHTTP(latest, mcp.StreamableClientTransport{}),
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			test(t, begin(t))
		})
	}
}
