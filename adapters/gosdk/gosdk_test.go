package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const latest, legacy = "2026-07-28", "2025-11-25"

var protocols = []string{latest, legacy, "2025-06-18"}

// testTimeout is for what must happen, however slow the machine is.
const testTimeout = 2 * time.Minute

// errBoom says that the backend has failed.
var errBoom = resilience.MarkBackend(errors.New("boom at 10.0.0.7"))

// fast retries without delay.
var fast = resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}}

var readOnly = &mcp.ToolAnnotations{ReadOnlyHint: true}

func eachProtocol(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

func newGuard(t *testing.T, cfg resilience.Config) *resilience.Guard {
	t.Helper()
	g, err := resilience.New(cfg)
	require.NoError(t, err)
	return g
}

func newServer(opts *mcp.ServerOptions) *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, opts)
}

func newClient(opts *mcp.ClientOptions, sending ...mcp.Middleware) *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, opts)
	client.AddSendingMiddleware(sending...)
	return client
}

// speaking returns the options of a client that begins with the given version of the protocol.
func speaking(protocol string) *mcp.ClientSessionOptions {
	return &mcp.ClientSessionOptions{ProtocolVersion: protocol}
}

// A fixture is a server and a client that is connected to it in memory.
type fixture struct {
	*testing.T
	server  *mcp.Server
	guard   *resilience.Guard
	session *mcp.ClientSession

	// of the client
	options   mcp.ClientOptions
	receiving []mcp.Middleware
}

// newFixture returns a fixture whose server isn't protected yet.
func newFixture(t *testing.T, cfg resilience.Config, opts *mcp.ServerOptions) *fixture {
	if cfg.Retry.Backoff.Base == 0 {
		cfg.Retry = fast
	}
	return &fixture{T: t, server: newServer(opts), guard: newGuard(t, cfg)}
}

func newProtected(t *testing.T, cfg resilience.Config, opts ...gosdk.Option) *fixture {
	f := newFixture(t, cfg, nil)
	gosdk.Protect(f.server, f.guard, opts...)
	return f
}

// connect connects a client, which lists the tools, as clients do.
func (f *fixture) connect(protocol string, sending ...mcp.Middleware) {
	f.Helper()
	f.connectBlind(protocol, sending...)
	f.list()
}

// list lists the tools, all pages of them.
func (f *fixture) list() (names []string) {
	f.Helper()
	for tool, err := range f.session.Tools(f.Context(), nil) {
		require.NoError(f, err)
		names = append(names, tool.Name)
	}
	return names
}

// connectBlind connects a client that lists nothing.
func (f *fixture) connectBlind(protocol string, sending ...mcp.Middleware) {
	f.Helper()
	client := newClient(&f.options, sending...)
	client.AddReceivingMiddleware(f.receiving...)
	f.connectClient(client, protocol)
}

func (f *fixture) connectClient(client *mcp.Client, protocol string) {
	f.Helper()
	serverSide, clientSide := mcp.NewInMemoryTransports()
	_, err := f.server.Connect(f.Context(), serverSide, nil)
	require.NoError(f, err)
	f.session, err = client.Connect(f.Context(), clientSide, speaking(protocol))
	require.NoError(f, err)
	session := f.session // there may be several clients
	f.Cleanup(func() { session.Close() })
}

// call calls a tool with the argument n: 1.
func (f *fixture) call(tool string, meta ...mcp.Meta) *mcp.CallToolResult {
	f.Helper()
	params := &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"n": 1}}
	if len(meta) > 0 {
		params.Meta = meta[0]
	}
	res, err := f.session.CallTool(f.Context(), params)
	require.NoError(f, err)
	return res
}

// protocolError calls a tool that must return a protocol error.
func (f *fixture) protocolError(tool string) *jsonrpc.Error {
	f.Helper()
	_, err := f.session.CallTool(f.Context(), &mcp.CallToolParams{Name: tool})
	var wire *jsonrpc.Error
	require.ErrorAs(f, err, &wire)
	return wire
}

type in struct {
	N int `json:"n"`
}

type out struct {
	V string `json:"v"`
}

// typed adds a tool by the SDK's generic API, which has an output schema.
func (f *fixture) typed(name string, hints *mcp.ToolAnnotations, work func(context.Context) error) {
	addTyped(f.server, &mcp.Tool{Name: name, Annotations: hints}, work)
}

func addTyped(server *mcp.Server, tool *mcp.Tool, work func(context.Context) error) {
	handler := func(ctx context.Context, _ *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, out, error) {
		if err := work(ctx); err != nil {
			return nil, out{}, err
		}
		return nil, out{"fine"}, nil
	}
	mcp.AddTool(server, tool, handler)
}

func succeed(context.Context) error { return nil }

// failing returns the work of a tool that counts its runs and fails.
func failing(runs *atomic.Int64) func(context.Context) error {
	return func(context.Context) error {
		runs.Add(1)
		return errBoom
	}
}

// raw adds a tool by the SDK's low-level API, which has no output schema.
func (f *fixture) raw(name string, hints *mcp.ToolAnnotations, handler mcp.ToolHandler) {
	addRaw(f.server, &mcp.Tool{Name: name, Annotations: hints}, handler)
}

func addRaw(server *mcp.Server, tool *mcp.Tool, handler mcp.ToolHandler) {
	tool.InputSchema = map[string]any{"type": "object"}
	server.AddTool(tool, handler)
}

func returns(res *mcp.CallToolResult, err error) mcp.ToolHandler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return res, err }
}

func textResult(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func errorTextResult(s string) *mcp.CallToolResult {
	res := textResult(s)
	res.IsError = true
	return res
}

// failedResult is the result of a tool that knows that its backend has failed.
func failedResult(s string) *mcp.CallToolResult {
	res := errorTextResult(s)
	res.SetError(errBoom)
	return res
}

// text returns the first item of a result's content. Guidance of the guard's may follow.
func text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	require.NotEmpty(t, res.Content)
	return res.Content[0].(*mcp.TextContent).Text
}

// guidanceOf returns what a guard has added to the content of a tool's own result, which has one item. It is "" if that
// is nothing.
func guidanceOf(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if len(res.Content) == 1 {
		return ""
	}
	require.Len(t, res.Content, 2)
	return res.Content[1].(*mcp.TextContent).Text
}

// metadata is an *Error as a client reads it in _meta.
type metadata struct {
	Code       resilience.Code `json:"code"`
	Message    string          `json:"message"`
	Suggestion string          `json:"suggestion"`
	Retryable  bool            `json:"retryable"`
	RetryAfter int             `json:"retryAfter"`
	Details    map[string]any  `json:"details"`
}

func metadataOf(t *testing.T, res *mcp.CallToolResult) (m metadata) {
	t.Helper()
	require.Contains(t, res.Meta, resilience.MetaError)
	require.NoError(t, json.Unmarshal([]byte(jsonOf(t, res.Meta[resilience.MetaError])), &m))
	return m
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// await receives from c, or returns the error of ctx if ctx ends first.
func await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testTimeout):
		require.FailNow(t, "nothing was received")
		panic("unreachable")
	}
}

func requireLost(t *testing.T, err error) *resilience.Error {
	t.Helper()
	var e *resilience.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, resilience.CodeConnectionLost, e.Code, "%v", errors.Unwrap(err))
	return e
}

// checked holds the tests that check what they leave.
var checked sync.Map

// leavesNothing checks at the end of the test that no goroutine is left. Only a test's first use of it counts: what the
// test has begun meanwhile may grow, and shrinks before that check.
func leavesNothing(t *testing.T) {
	if _, again := checked.LoadOrStore(t, true); again {
		return
	}
	before := runtime.NumGoroutine() + 1 // Eventually starts one too
	t.Cleanup(func() {
		none := func() bool { return runtime.NumGoroutine() <= before }
		if !assert.Eventually(t, none, testTimeout, time.Millisecond) {
			b := make([]byte, 1<<20)
			t.Logf("%s", b[:runtime.Stack(b, true)])
		}
	})
}
