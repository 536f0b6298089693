//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/examples/chromiumtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A shop is a site with one page. Its button sends an order, which blocks the page until it is answered.
type shop struct {
	*httptest.Server
	orders  atomic.Int32
	holding atomic.Bool   // orders then have their effect, but no answer
	held    chan struct{} // receives when an order isn't answered
}

const page = `<!doctype html>
<title>Shop</title>
<p id="stock">7 left</p>
<button id="buy" onclick="const r = new XMLHttpRequest(); r.open('POST', '/', false); r.send()">Buy</button>
`

func openShop(t *testing.T) *shop {
	s := &shop{held: make(chan struct{}, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.orders.Add(1)
			if s.holding.Load() {
				s.held <- struct{}{}
				<-r.Context().Done()
			}
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, page)
	}))
	t.Cleanup(s.Close)
	return s
}

// A chromium is a browser that can be killed and started again at the same address.
type chromium struct {
	t    *testing.T
	path string
	port string
	cmd  *exec.Cmd
}

// newChromium returns a browser that isn't started yet.
func newChromium(t *testing.T) *chromium {
	return &chromium{t: t, path: chromiumtest.Path(t), port: chromiumtest.Port(t)}
}

// start starts the browser with a new profile: a killed one leaves its own in disorder.
func (b *chromium) start() {
	b.cmd = exec.Command(b.path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--remote-debugging-port="+b.port, "--user-data-dir="+b.t.TempDir())
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(b.t, b.cmd.Start())
	b.t.Cleanup(b.kill)
}

func (b *chromium) kill() {
	b.signal(syscall.SIGKILL)
	_ = b.cmd.Wait()
}

// signal sends a signal to the browser and all of its children.
func (b *chromium) signal(s syscall.Signal) { _ = syscall.Kill(-b.cmd.Process.Pid, s) }

// An agent calls the tools of a bridge.
type agent struct {
	t       *testing.T
	session *mcp.ClientSession
}

func connectAgent(t *testing.T, b *chromium, s *shop, timeout time.Duration) *agent {
	tabs := connect("http://127.0.0.1:"+b.port, s.URL, resilience.ConnectorConfig[*tab]{
		Backoff:      resilience.Backoff{Base: 10 * time.Millisecond, Max: 100 * time.Millisecond},
		CheckTimeout: time.Second,
	})
	t.Cleanup(func() { _ = tabs.Close() })
	guard, err := newGuard(resilience.Config{
		Timeouts: resilience.Timeouts{resilience.Quick: timeout},
		Breaker:  resilience.BreakerConfig{Failures: 1000}, // the connection is the subject
	})
	require.NoError(t, err)

	serverSide, clientSide := mcp.NewInMemoryTransports()
	_, err = newServer(guard, tabs).Connect(t.Context(), serverSide, nil)
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), clientSide, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return &agent{t, session}
}

// An answer is what an agent reads. The code is empty for success.
type answer struct {
	Text       string
	Clicked    bool
	Code       resilience.Code
	Message    string
	Suggestion string
	Retryable  bool
	RetryAfter float64
}

func (a *agent) call(tool, selector string) (got answer) {
	args := map[string]any{}
	if selector != "" {
		args["selector"] = selector
	}
	res, err := a.session.CallTool(a.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(a.t, err)

	from := res.StructuredContent
	if res.IsError {
		from = res.Meta[resilience.MetaError]
	}
	b, err := json.Marshal(from)
	require.NoError(a.t, err)
	require.NoError(a.t, json.Unmarshal(b, &got))
	return got
}

// eventually calls a tool until it succeeds.
func (a *agent) eventually(tool, selector string) (got answer) {
	chromiumtest.Eventually(a.t, func() bool {
		got = a.call(tool, selector)
		return got.Code == ""
	}, "the connection doesn't come back")
	return got
}

func TestTheBrowserMayEndAndStartAgain(t *testing.T) {
	b, s := newChromium(t), openShop(t)
	a := connectAgent(t, b, s, chromiumtest.Wait)
	got := a.call("title", "")
	assert.Equal(t, resilience.CodeConnectionLost, got.Code, "the browser isn't there yet")
	assert.True(t, got.Retryable)
	assert.Positive(t, got.RetryAfter)
	assert.Contains(t, got.Suggestion, "Ensure that the browser is running")

	b.start()
	assert.Equal(t, "Shop", a.eventually("title", "").Text)
	assert.True(t, a.call("click", "#buy").Clicked)
	assert.EqualValues(t, 1, s.orders.Load())
	assert.Equal(t, "7 left", a.call("text", "#stock").Text)
	for selector, message := range map[string]string{"#sell": "no element that matches", "##": "SyntaxError"} {
		got = a.call("click", selector)
		assert.Equal(t, resilience.CodeValidation, got.Code)
		assert.Contains(t, got.Message, message)
	}

	s.holding.Store(true)
	clicked := make(chan answer)
	go func() { clicked <- a.call("click", "#buy") }()
	<-s.held
	b.kill()
	got = <-clicked
	assert.Equal(t, resilience.CodeConnectionLost, got.Code)
	assert.False(t, got.Retryable, "the click has taken effect")
	assert.Contains(t, got.Suggestion, "It may have taken effect")
	assert.EqualValues(t, 2, s.orders.Load())

	s.holding.Store(false)
	b.start()
	assert.Equal(t, "Shop", a.eventually("title", "").Text)
	assert.EqualValues(t, 2, s.orders.Load(), "nothing was bought twice")
}

// A browser that hangs loses its connection. If only the page hangs, it keeps it.
func TestABrowserThatHangsIsLeft(t *testing.T) {
	b, s := newChromium(t), openShop(t)
	a := connectAgent(t, b, s, time.Second)
	b.start()
	a.eventually("title", "")

	s.holding.Store(true)
	for len(s.held) == 0 { // a call may time out before it has come to the shop
		assert.Equal(t, resilience.CodeTimeout, a.call("click", "#buy").Code)
	}
	s.holding.Store(false) // the browser sends an order again whose connection is closed
	s.CloseClientConnections()
	assert.Equal(t, "Shop", a.eventually("title", "").Text)

	b.signal(syscall.SIGSTOP)
	chromiumtest.Eventually(t, func() bool {
		return a.call("title", "").Code == resilience.CodeConnectionLost
	}, "the connection is kept")
	b.signal(syscall.SIGCONT)
	assert.Equal(t, "Shop", a.eventually("title", "").Text)
}
