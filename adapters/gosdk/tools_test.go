package gosdk_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
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

func TestAnnotationsDecideWhatIsRetried(t *testing.T) {
	f := newProtected(t, resilience.Config{
		Tools: map[string]resilience.Tool{
			"listed": {Effect: resilience.ReadOnly}, "without an effect": {Breaker: "b"},
		},
		Breaker: resilience.BreakerConfig{Failures: 100},
	})
	var runs atomic.Int64
	fail := failing(&runs)
	f.typed("none", nil, fail)
	f.typed("read-only", readOnly, fail)
	f.typed("idempotent", &mcp.ToolAnnotations{IdempotentHint: true}, fail)
	f.typed("not", &mcp.ToolAnnotations{}, fail)
	f.typed("listed", nil, fail)
	f.typed("without an effect", readOnly, fail)
	f.connectBlind("")

	count := func(tool string) int64 {
		f.guard.Breaker(tool).Reset() // a tool that has just failed isn't retried
		runs.Store(0)
		res := f.call(tool)
		assert.Equal(t, errBoom.Error(), text(t, res), "after the last attempt, its own result")
		assert.Equal(t, runs.Load() > 1, metadataOf(t, res).Code == resilience.CodeRetryExhausted, tool)
		return runs.Load()
	}
	for tool, want := range map[string]int64{
		"none": 1, "read-only": 4, "idempotent": 4, "not": 1, "listed": 4, "without an effect": 4,
	} {
		assert.Equal(t, want, count(tool), tool)
	}

	// A new tool is known from its first call, a changed one once a client has listed the tools.
	f.typed("new", readOnly, fail)
	assert.EqualValues(t, 4, count("new"))
	f.typed("none", readOnly, fail)
	f.list()
	assert.EqualValues(t, 4, count("none"))
	f.server.RemoveTools("new")
	assert.EqualValues(t, jsonrpc.CodeInvalidParams, f.protocolError("new").Code)
}

// Many tools come in pages, of which the Config lists one of the last.
func TestToolsOnLaterPagesAreFound(t *testing.T) {
	var log strings.Builder
	f := newFixture(t, resilience.Config{
		Tools: map[string]resilience.Tool{"t8": {}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &mcp.ServerOptions{PageSize: 3})
	f.server.AddReceivingMiddleware(gosdk.Middleware(f.guard)) // without Protect
	var runs atomic.Int64
	for i := range 10 {
		f.typed(fmt.Sprint("t", i), readOnly, failing(&runs))
	}
	f.connectBlind("")
	f.call("t9")
	assert.EqualValues(t, 4, runs.Load())
	require.NoError(t, f.guard.Flush(t.Context()))
	assert.Empty(t, log.String())
}

// A server that lives for one request knows its tools, too.
func TestServerForOneRequestKnowsItsTools(t *testing.T) {
	g := newGuard(t, resilience.Config{Retry: fast})
	var runs atomic.Int64
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		server := newServer(nil)
		gosdk.Protect(server, g)
		addTyped(server, &mcp.Tool{Name: "x", Annotations: readOnly}, failing(&runs))
		return server
	}, &mcp.StreamableHTTPOptions{Stateless: true}))
	defer server.Close()
	session, err := newClient(nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL}, nil)
	require.NoError(t, err)
	defer session.Close()

	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x", Arguments: in{}})
	require.NoError(t, err)
	assert.Equal(t, errBoom.Error(), text(t, res))
	assert.EqualValues(t, 4, runs.Load())
}

// The server is asked when a call names a tool that isn't known, and after a client has asked.
func TestServerIsAskedForItsToolsSeldom(t *testing.T) {
	f := newFixture(t, resilience.Config{}, nil)
	lists := 0
	f.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				lists++
			}
			return next(ctx, method, req)
		}
	})
	gosdk.Protect(f.server, f.guard)
	f.typed("works", nil, succeed)
	f.typed("fails", readOnly, func(context.Context) error { return errBoom })
	f.connectBlind("")
	callAll := func() {
		for range 3 {
			f.call("works")
			f.call("fails")
		}
	}

	callAll()
	assert.Equal(t, 1, lists)
	f.list()
	callAll()
	assert.Equal(t, 3, lists)
	f.protocolError("made up")
	assert.Equal(t, 4, lists)
}

// A fakeServer is what middleware is put around. Its tools fail.
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
	s.runs[req.(*mcp.CallToolRequest).Params.Name]++
	return failedResult("no"), nil
}

// Other middleware may do anything to tools/list. It takes at most a second, and changes nothing for calls: each tool
// has a breaker of its own, and isn't retried if it may have had an effect.
func TestServerThatCannotBeAskedForItsTools(t *testing.T) {
	var none *mcp.ListToolsResult
	for name, list := range map[string]func() (mcp.Result, error){
		"refused":       func() (mcp.Result, error) { return nil, errBoom },
		"refused, with": func() (mcp.Result, error) { res, _ := listOf("x")(); return res, errBoom },
		"nothing":       func() (mcp.Result, error) { return nil, nil },
		"a nil pointer": func() (mcp.Result, error) { return none, nil },
		"another type":  func() (mcp.Result, error) { return &mcp.CallToolResult{}, nil },
		"a panic":       func() (mcp.Result, error) { panic("list") },
		"it hangs":      func() (mcp.Result, error) { time.Sleep(time.Hour); return listOf("x")() },
		"endless": func() (mcp.Result, error) {
			time.Sleep(time.Millisecond)
			return &mcp.ListToolsResult{NextCursor: "more"}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var works atomic.Bool
				var lists atomic.Int64
				s := &fakeServer{runs: make(map[string]int), list: func() (mcp.Result, error) {
					lists.Add(1)
					if works.Load() {
						return listOf("x")()
					}
					return list()
				}}
				g := newGuard(t, resilience.Config{Retry: fast})
				handler := gosdk.Middleware(g)(s.handle)
				call := func(tool string) *mcp.CallToolResult {
					req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool}}
					res, err := handler(t.Context(), "tools/call", req)
					require.NoError(t, err)
					return res.(*mcp.CallToolResult)
				}

				start := time.Now()
				call("x")
				assert.LessOrEqual(t, time.Since(start), time.Second)
				call("y")
				assert.Equal(t, map[string]int{"x": 1, "y": 1}, s.runs, "whether they may be repeated isn't known")
				health := g.Health()
				require.Len(t, health, 2)
				assert.Equal(t, []string{"x", "y"}, []string{health[0].Tool, health[1].Tool})

				time.Sleep(2 * time.Hour)
				before := lists.Load()
				time.Sleep(time.Hour)
				assert.Equal(t, before, lists.Load(), "no call waits for more")

				works.Store(true)
				g.Breaker("x").Reset() // a tool that has just failed isn't retried
				call("x")
				assert.Equal(t, 1+4, s.runs["x"], "the next call asks again")
				call("made up")
				assert.Equal(t, "(others)", g.Health()[0].Tool)
			})
		})
	}
}

// Names that agents make up share a breaker, have no state, and displace none.
func TestMadeUpNamesShareOneBreaker(t *testing.T) {
	f := newProtected(t, resilience.Config{Breaker: resilience.BreakerConfig{Cooldown: time.Hour}})
	f.typed("broken", readOnly, func(context.Context) error { return resilience.MarkPermanent(errBoom) })
	f.typed("healthy", nil, succeed)
	f.connectBlind("")
	for range 5 {
		f.call("broken")
	}
	for i := range 50 {
		assert.EqualValues(t, jsonrpc.CodeInvalidParams, f.protocolError(fmt.Sprint("made up ", i)).Code)
	}

	assert.Equal(t, resilience.CodeCircuitOpen, metadataOf(t, f.call("broken")).Code)
	assert.False(t, f.call("healthy").IsError)
	health := f.guard.Health()
	require.Len(t, health, 3)
	assert.Equal(t, "(others)", health[0].Tool)
	assert.Zero(t, health[0].ConsecutiveFailures)
}

func TestNameInTheConfigThatTheServerLacksIsSaidOnce(t *testing.T) {
	var log strings.Builder
	f := newProtected(t, resilience.Config{
		Tools: map[string]resilience.Tool{"works": {}, "wroks": {}},
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
	})
	f.typed("works", nil, succeed)
	f.connectBlind("")
	f.call("works")
	f.list()
	f.call("works")
	require.NoError(t, f.guard.Flush(t.Context()))
	assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	assert.Contains(t, log.String(), "tool=wroks")
}
