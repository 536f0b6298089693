package gosdk_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMadeUpNamesShareOneBreaker(t *testing.T) {
	f := newProtected(t, resilience.Config{})
	f.typed("real", nil, succeed)
	f.connect("")
	f.call("real")
	for i := range 50 {
		_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: fmt.Sprint("made-up-", i)})
		require.Error(t, err)
	}
	health := f.guard.Health()
	require.Len(t, health, 2)
	assert.Equal(t, "(others)", health[0].Tool)
	assert.Zero(t, health[0].ConsecutiveFailures)
}

func TestAnnotationsDecideWhatIsRetried(t *testing.T) {
	f := newProtected(t, resilience.Config{
		Tools:   map[string]resilience.Tool{"listed": {Effect: resilience.ReadOnly}},
		Breaker: resilience.BreakerConfig{Failures: 100},
	})
	var runs atomic.Int64
	fail := failing(&runs)
	f.typed("none", nil, fail)
	f.typed("read-only", readOnly, fail)
	f.typed("idempotent", &mcp.ToolAnnotations{IdempotentHint: true}, fail)
	f.typed("not", &mcp.ToolAnnotations{}, fail)
	f.typed("listed", nil, fail)
	f.connect("")

	count := func(tool string) int64 {
		runs.Store(0)
		f.call(tool)
		return runs.Load()
	}
	for tool, want := range map[string]int64{"none": 1, "read-only": 4, "idempotent": 4, "not": 1, "listed": 4} {
		assert.Equal(t, want, count(tool), tool)
	}
	res := f.call("read-only")
	assert.Equal(t, errBoom.Error(), text(t, res), "after the last attempt, its own result")
	assert.Equal(t, resilience.CodeRetryExhausted, metadataOf(t, res).Code)

	// Tools that are changed or added while the server runs are noticed when a client lists them.
	f.typed("none", readOnly, fail)
	f.typed("new", readOnly, fail)
	f.list()
	assert.EqualValues(t, 4, count("none"))
	assert.EqualValues(t, 4, count("new"))
	f.server.RemoveTools("new")
	assert.EqualValues(t, jsonrpc.CodeInvalidParams, f.protocolError("new").Code)
}

func TestToolsOnLaterPagesAreFound(t *testing.T) {
	f := newFixture(t, resilience.Config{}, &mcp.ServerOptions{PageSize: 3})
	f.server.AddReceivingMiddleware(gosdk.Middleware(f.guard)) // without Protect
	var runs atomic.Int64
	for i := range 10 {
		f.typed(fmt.Sprint("t", i), readOnly, failing(&runs))
	}
	f.connect("")
	f.call("t9")
	assert.EqualValues(t, 4, runs.Load())
}

// A lister counts the lists and the calls of tools that come to a server. It is middleware behind the guard.
type lister struct{ lists, calls atomic.Int64 }

func (l *lister) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "tools/list":
			l.lists.Add(1)
		case "tools/call":
			l.calls.Add(1)
		}
		return next(ctx, method, req)
	}
}

func TestOtherMiddlewareSeesNoListThatNoClientAskedFor(t *testing.T) {
	f := newFixture(t, resilience.Config{}, nil)
	var l lister
	f.server.AddReceivingMiddleware(l.middleware)
	gosdk.Protect(f.server, f.guard)
	f.typed("works", nil, succeed)
	f.typed("fails", readOnly, func(context.Context) error { return errBoom })
	f.connectBlind("")
	callAll := func() {
		for range 3 {
			f.call("works")
			f.call("fails")
			f.protocolError("made up")
		}
	}

	callAll()
	assert.Zero(t, l.lists.Load())
	f.list()
	callAll()
	assert.EqualValues(t, 1, l.lists.Load())
}

// A fakeServer is what middleware is put around. It makes lists of any kind, and its tools fail.
type fakeServer struct {
	list func() (mcp.Result, error)
	runs map[string]int // how often each tool ran
}

func listOf(names ...string) func() (mcp.Result, error) {
	return func() (mcp.Result, error) {
		res := &mcp.ListToolsResult{}
		for _, name := range names {
			res.Tools = append(res.Tools, &mcp.Tool{Name: name, Annotations: readOnly})
		}
		return res, nil
	}
}

func (s *fakeServer) handle(_ context.Context, method string, req mcp.Request) (mcp.Result, error) {
	if method == "tools/list" {
		return s.list()
	}
	if s.runs == nil {
		s.runs = make(map[string]int)
	}
	s.runs[req.(*mcp.CallToolRequest).Params.Name]++
	res := &mcp.CallToolResult{}
	res.SetError(errBoom)
	return res, nil
}

// A fakeClient calls a fakeServer through middleware.
type fakeClient struct {
	*testing.T
	handler mcp.MethodHandler
}

func (c fakeClient) list() (mcp.Result, error) {
	return c.handler(c.Context(), "tools/list", &mcp.ListToolsRequest{Params: &mcp.ListToolsParams{}})
}

func (c fakeClient) call(tool string) resilience.Code {
	c.Helper()
	res, err := c.handler(c.Context(), "tools/call",
		&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool}})
	require.NoError(c, err)
	return metadataOf(c.T, res.(*mcp.CallToolResult)).Code
}

// fake returns a server and a client of it, behind a guard whose breakers don't open.
func fake(t *testing.T, opts ...gosdk.Option) (*fakeServer, fakeClient, *resilience.Guard) {
	g := newGuard(t, resilience.Config{Retry: fast, Breaker: resilience.BreakerConfig{Failures: 100_000}})
	s := &fakeServer{}
	return s, fakeClient{t, gosdk.Middleware(g, opts...)(s.handle)}, g
}

// Other middleware may do anything to tools/list. It reaches the client as it is, and changes nothing for
// calls: each tool has a breaker of its own, and is retried if an earlier list said that it may be.
func TestListThatSaysNothingHarmsNothing(t *testing.T) {
	var none *mcp.ListToolsResult
	for name, list := range map[string]func() (mcp.Result, error){
		"refused":       func() (mcp.Result, error) { return nil, errBoom },
		"refused, with": func() (mcp.Result, error) { res, _ := listOf("x")(); return res, errBoom },
		"empty":         func() (mcp.Result, error) { return &mcp.ListToolsResult{}, nil },
		"nothing":       func() (mcp.Result, error) { return nil, nil },
		"a nil pointer": func() (mcp.Result, error) { return none, nil },
		"a nil tool":    func() (mcp.Result, error) { return &mcp.ListToolsResult{Tools: []*mcp.Tool{nil}}, nil },
		"another type":  func() (mcp.Result, error) { return &mcp.CallToolResult{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			s, c, g := fake(t)
			s.list = list
			want, wantErr := list()
			got, err := c.list()
			assert.Equal(t, want, got)
			assert.Equal(t, wantErr, err)

			c.call("x")
			c.call("y")
			assert.Equal(t, map[string]int{"x": 1, "y": 1}, s.runs, "whether they may be repeated isn't known")
			health := g.Health()
			require.Len(t, health, 2)
			assert.Equal(t, []string{"x", "y"}, []string{health[0].Tool, health[1].Tool})

			s.list = listOf("x")
			_, _ = c.list()
			s.list = list
			_, _ = c.list()
			c.call("x")
			assert.Equal(t, 1+4, s.runs["x"])
		})
	}
}

func TestListThatPanicsOrHangsHarmsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, _ := fake(t)
		s.list = func() (mcp.Result, error) { panic("list") }
		assert.PanicsWithValue(t, "list", func() { _, _ = c.list() })

		hang := make(chan struct{})
		s.list = func() (mcp.Result, error) { <-hang; return listOf("x")() }
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.list() })
		synctest.Wait()
		c.call("x")
		assert.Equal(t, 1, s.runs["x"])
		close(hang)
		wg.Wait()
		c.call("x")
		assert.Equal(t, 1+4, s.runs["x"], "the list counts once it is there")
	})
}

// Each page is a list that leaves tools out, and a server may show each client other tools.
func TestWhatListsHaveShownAddsUp(t *testing.T) {
	s, c, g := fake(t)
	for _, name := range []string{"a", "b", "c"} {
		s.list = listOf(name)
		_, _ = c.list()
	}
	for _, name := range []string{"a", "b", "c", "hidden"} {
		c.call(name)
	}
	assert.Equal(t, map[string]int{"a": 4, "b": 4, "c": 4, "hidden": 1}, s.runs)
	assert.Equal(t, "(others)", g.Health()[0].Tool)
}

// A gateway's tools come and go.
func TestToolThatIsGoneIsForgotten(t *testing.T) {
	s, c, _ := fake(t)
	s.list = listOf("in use", "gone")
	_, _ = c.list()
	for i := range 100 {
		names := make([]string, 200)
		for j := range names {
			names[j] = fmt.Sprint("t", i, "-", j)
		}
		s.list = listOf(names...)
		_, _ = c.list()
		c.call("in use")
	}
	c.call("gone")
	c.call("t0-0")
	c.call("t99-0")
	assert.Equal(t, map[string]int{"in use": 400, "gone": 1, "t0-0": 1, "t99-0": 4}, s.runs)
}

// The bound is what the comment at maxTools says: 10,000 others displace a tool, and naming known ones again doesn't.
func TestToolIsForgottenAfterTenThousandOthers(t *testing.T) {
	named := func(from, to int) (names []string) {
		for i := from; i < to; i++ {
			names = append(names, fmt.Sprint("t", i))
		}
		return names
	}
	for name, tc := range map[string]struct {
		then []string
		runs int
	}{
		"the same again": {named(4999, 9999), 4},
		"nothing":        {nil, 4},
		"one more":       {named(9999, 10_000), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := fake(t)
			for _, names := range [][]string{{"x"}, named(0, 9999), tc.then} {
				s.list = listOf(names...)
				_, _ = c.list()
			}
			c.call("x")
			assert.Equal(t, tc.runs, s.runs["x"])
		})
	}
}

func TestMadeUpNamesDisplaceNoOpenBreaker(t *testing.T) {
	for name, connect := range map[string]func(*fixture, string, ...mcp.Middleware){
		"listed": (*fixture).connect, "before any list": (*fixture).connectBlind,
	} {
		t.Run(name, func(t *testing.T) {
			f := newProtected(t, resilience.Config{Breaker: resilience.BreakerConfig{Cooldown: time.Hour}})
			f.typed("broken", readOnly, func(context.Context) error { return resilience.MarkPermanent(errBoom) })
			f.typed("healthy", nil, succeed)
			connect(f, "")
			for range 5 {
				f.call("broken")
			}

			for i := range 100 {
				_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: fmt.Sprint("made up ", i)})
				require.Error(t, err)
			}
			assert.Equal(t, resilience.CodeCircuitOpen, metadataOf(t, f.call("broken")).Code)
			assert.False(t, f.call("healthy").IsError)
			assert.LessOrEqual(t, len(f.guard.Health()), 3, "made-up names have no state")
		})
	}
}

func TestServersForOneRequestEachShareTools(t *testing.T) {
	g := newGuard(t, resilience.Config{Retry: fast, Breaker: resilience.BreakerConfig{Failures: 100}})
	var runs atomic.Int64
	var l lister
	shared := gosdk.ShareTools()
	newHandler := func(opts ...gosdk.Option) http.Handler {
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
			server := newServer(nil)
			server.AddReceivingMiddleware(l.middleware)
			gosdk.Protect(server, g, opts...)
			addTyped(server, &mcp.Tool{Name: "x", Annotations: readOnly}, failing(&runs))
			return server
		}, &mcp.StreamableHTTPOptions{Stateless: true})
	}

	for want, handler := range map[int64]http.Handler{4: newHandler(shared, nil), 1: newHandler()} {
		runs.Store(0)
		l.lists.Store(0)
		server := httptest.NewServer(handler)
		session, err := newClient(nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL}, nil)
		require.NoError(t, err)
		_, err = session.ListTools(t.Context(), nil)
		require.NoError(t, err)
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x", Arguments: in{}})
		require.NoError(t, err)

		assert.Equal(t, errBoom.Error(), text(t, res))
		assert.Equal(t, want, runs.Load())
		assert.EqualValues(t, 1, l.lists.Load(), "the client's")
		require.NoError(t, session.Close())
		server.Close()
	}
}

func TestNameInTheConfigThatTheServerLacksIsSaidOnce(t *testing.T) {
	var out strings.Builder
	f := newProtected(t, resilience.Config{
		Tools: map[string]resilience.Tool{"works": {}, "wroks": {}},
		Log:   slog.New(slog.NewTextHandler(&out, nil)),
	})
	f.typed("works", nil, succeed)
	f.connect("")
	f.list()
	require.NoError(t, f.guard.Flush(t.Context()))
	assert.Equal(t, 1, strings.Count(out.String(), "level=WARN"), out.String())
	assert.Contains(t, out.String(), "tool=wroks")
}

func TestNameInTheConfigIsMissedOnlyInAListOfOnePage(t *testing.T) {
	for name, tc := range map[string]struct {
		params *mcp.ListToolsParams
		next   string
		missed int
	}{
		"one page":       {&mcp.ListToolsParams{}, "", 1},
		"no params":      {nil, "", 1},
		"the first page": {&mcp.ListToolsParams{}, "2", 0},
		"the last page":  {&mcp.ListToolsParams{Cursor: "2"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			g := newGuard(t, resilience.Config{
				Tools: map[string]resilience.Tool{"x": {}}, Log: slog.New(slog.NewTextHandler(&out, nil)),
			})
			list := gosdk.Middleware(g)(func(context.Context, string, mcp.Request) (mcp.Result, error) {
				return &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: "y"}}, NextCursor: tc.next}, nil
			})
			_, err := list(t.Context(), "tools/list", &mcp.ListToolsRequest{Params: tc.params})
			require.NoError(t, err)
			require.NoError(t, g.Flush(t.Context()))
			assert.Equal(t, tc.missed, strings.Count(out.String(), "level=WARN"), out.String())
		})
	}
}
