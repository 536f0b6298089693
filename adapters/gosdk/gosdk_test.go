package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
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

var protocols = []string{"2026-07-28", "2025-11-25", "2025-06-18"}

var errBoom = errors.New("boom at 10.0.0.7")

// fast retries without delay.
var fast = resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}}

type fixture struct {
	*testing.T
	server  *mcp.Server
	guard   *resilience.Guard
	session *mcp.ClientSession
	options mcp.ClientOptions
}

func newServer(t *testing.T, cfg resilience.Config, opts ...gosdk.Option) *fixture {
	f := &fixture{T: t, server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}
	if cfg.Retry.Backoff.Base == 0 {
		cfg.Retry = fast
	}
	f.guard = resilience.Must(resilience.New(cfg))
	gosdk.Protect(f.server, f.guard, opts...)
	return f
}

// speaking returns the options of a client that begins with a version of the protocol. v1.7 of
// the SDK has the field too, but doesn't export it.
func speaking(protocol string) *mcp.ClientSessionOptions {
	var opts mcp.ClientSessionOptions
	field := reflect.ValueOf(&opts).Elem().FieldByNameFunc(func(name string) bool {
		return strings.EqualFold(name, "ProtocolVersion")
	})
	reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().SetString(protocol)
	return &opts
}

func (f *fixture) connect(protocol string) *fixture {
	serverSide, clientSide := mcp.NewInMemoryTransports()
	_, err := f.server.Connect(f.Context(), serverSide, nil)
	require.NoError(f, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &f.options)
	f.session, err = client.Connect(f.Context(), clientSide, speaking(protocol))
	require.NoError(f, err)
	f.Cleanup(func() { f.session.Close() })
	return f
}

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

// advice is our error as a client reads it in _meta.
type advice struct {
	Code       resilience.Code `json:"code"`
	Retryable  bool            `json:"retryable"`
	RetryAfter int             `json:"retryAfter"`
	Details    map[string]any  `json:"details"`
}

func adviceOf(t *testing.T, res *mcp.CallToolResult) (a advice) {
	t.Helper()
	require.Contains(t, res.Meta, resilience.MetaError)
	b, err := json.Marshal(res.Meta[resilience.MetaError])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &a))
	return a
}

func text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	require.Len(t, res.Content, 1)
	return res.Content[0].(*mcp.TextContent).Text
}

type in struct {
	N int `json:"n"`
}

type out struct {
	V string `json:"v"`
}

// typed adds a typed tool, which has an output schema.
func (f *fixture) typed(name string, hints *mcp.ToolAnnotations, work func(context.Context) error) {
	mcp.AddTool(f.server, &mcp.Tool{Name: name, Annotations: hints}, func(ctx context.Context, _ *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, out, error) {
		if err := work(ctx); err != nil {
			return nil, out{}, err
		}
		return nil, out{"fine"}, nil
	})
}

// raw adds a tool by the SDK's low-level API, which has no output schema.
func (f *fixture) raw(name string, hints *mcp.ToolAnnotations, handler mcp.ToolHandler) {
	f.server.AddTool(&mcp.Tool{Name: name, Annotations: hints, InputSchema: map[string]any{"type": "object"}}, handler)
}

var readOnly = &mcp.ToolAnnotations{ReadOnlyHint: true}

func TestEveryKindOfCall(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			hangs := resilience.Tool{Timeout: 50 * time.Millisecond, Effect: resilience.NonIdempotent} // the others have all the time that they need
			f := newServer(t, resilience.Config{
				Tools:   map[string]resilience.Tool{"typed-hang": hangs, "raw-hang": hangs},
				Breaker: resilience.BreakerConfig{Failures: 100},
			})
			hung := make(chan struct{})
			defer close(hung)
			ok := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "fine"}}}
			bad := &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"mine": "kept"}, Content: []mcp.Content{&mcp.TextContent{Text: "no such row"}}}
			f.typed("typed", nil, func(context.Context) error { return nil })
			f.typed("typed-error", nil, func(context.Context) error { return errBoom })
			f.typed("typed-panic", nil, func(context.Context) error { panic(errBoom) })
			f.typed("typed-exit", nil, func(context.Context) error { runtime.Goexit(); return nil })
			f.typed("typed-hang", nil, func(context.Context) error { <-hung; return nil })
			f.raw("raw", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return ok, nil })
			f.raw("raw-is-error", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return bad, nil })
			f.raw("raw-error", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, errBoom })
			f.raw("raw-hang", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { <-hung; return ok, nil })
			f.raw("raw-wire", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, &jsonrpc.Error{Code: -32042, Message: "on purpose"}
			})
			f.connect(protocol)

			for tool, want := range map[string]struct {
				code       resilience.Code // "": success
				own        string          // the tool's own text; "": ours
				structured bool
			}{
				"typed":        {"", `{"v":"fine"}`, true},
				"typed-error":  {resilience.CodeToolFailed, errBoom.Error(), false},
				"typed-panic":  {resilience.CodeToolFailed, "", false},
				"typed-exit":   {resilience.CodeToolFailed, "", false},
				"typed-hang":   {resilience.CodeTimeout, "", false},
				"raw":          {"", "fine", false},
				"raw-is-error": {resilience.CodeToolFailed, "no such row", false},
				"raw-error":    {resilience.CodeToolFailed, "", true},
				"raw-hang":     {resilience.CodeTimeout, "", true},
			} {
				res := f.call(tool)
				assert.Equal(t, want.code != "", res.IsError, tool)
				assert.Equal(t, want.structured, res.StructuredContent != nil, tool)
				wire, err := json.Marshal(res)
				require.NoError(t, err)
				if protocol == "2026-07-28" {
					assert.Contains(t, string(wire), `"resultType":"complete"`, tool)
				} else {
					assert.NotContains(t, string(wire), "resultType", tool)
				}
				if want.code == "" {
					assert.NotContains(t, res.Meta, resilience.MetaError, tool)
					assert.Equal(t, want.own, text(t, res), tool)
					continue
				}
				a := adviceOf(t, res)
				assert.Equal(t, want.code, a.Code, tool)
				assert.False(t, a.Retryable, "%s: MCP's default is that it must not be repeated", tool)
				if want.own != "" {
					assert.Equal(t, want.own, text(t, res), tool)
					continue
				}
				inMeta, err := json.Marshal(res.Meta[resilience.MetaError])
				require.NoError(t, err)
				assert.JSONEq(t, string(inMeta), text(t, res), tool)
				assert.NotContains(t, string(wire), "10.0.0.7", tool)
				if want.structured {
					structured, err := json.Marshal(res.StructuredContent)
					require.NoError(t, err)
					assert.JSONEq(t, text(t, res), string(structured), tool)
				}
			}
			assert.Equal(t, "kept", f.call("raw-is-error").Meta["mine"])
			assert.NotContains(t, bad.Meta, resilience.MetaError, "the tool's own is never changed")

			// Protocol errors stay what they are.
			var wire *jsonrpc.Error
			_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "raw-wire"})
			require.ErrorAs(t, err, &wire)
			assert.EqualValues(t, -32042, wire.Code)
			assert.Equal(t, "on purpose", wire.Message)
			_, err = f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "no-such-tool"})
			require.ErrorAs(t, err, &wire)
			assert.EqualValues(t, jsonrpc.CodeInvalidParams, wire.Code)

			// Other methods pass untouched.
			list, err := f.session.ListTools(t.Context(), nil)
			require.NoError(t, err)
			assert.Len(t, list.Tools, 10)
		})
	}
}

func TestMadeUpNamesLeaveNothing(t *testing.T) {
	f := newServer(t, resilience.Config{})
	f.typed("real", nil, func(context.Context) error { return nil })
	f.connect("")
	f.call("real")
	for i := range 50 {
		_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: fmt.Sprint("made-up-", i)})
		require.Error(t, err)
	}
	health := f.guard.Health()
	require.Len(t, health, 2)
	assert.Equal(t, "(others)", health[0].Tool, "which they share")
	assert.Zero(t, health[0].ConsecutiveFailures)
}

func TestEffectsFromAnnotations(t *testing.T) {
	f := newServer(t, resilience.Config{Tools: map[string]resilience.Tool{"listed": {Effect: resilience.ReadOnly}}, Breaker: resilience.BreakerConfig{Failures: 100}})
	var runs atomic.Int64
	fail := func(context.Context) error { runs.Add(1); return errBoom }
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
	assert.Equal(t, errBoom.Error(), text(t, f.call("read-only")), "after the last try: the tool's own result")
	assert.Equal(t, resilience.CodeRetryExhausted, adviceOf(t, f.call("read-only")).Code)

	// Tools that are changed, added or removed while the server runs are seen.
	f.typed("none", readOnly, fail)
	assert.EqualValues(t, 4, count("none"))
	f.typed("new", readOnly, fail)
	assert.EqualValues(t, 4, count("new"))
	f.server.RemoveTools("new")
	_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "new"})
	var wire *jsonrpc.Error
	require.ErrorAs(t, err, &wire)
	assert.EqualValues(t, jsonrpc.CodeInvalidParams, wire.Code)
}

// More tools than fit on one page of the list.
func TestManyTools(t *testing.T) {
	f := &fixture{T: t, server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{PageSize: 3})}
	f.guard = resilience.Must(resilience.New(resilience.Config{Retry: fast}))
	f.server.AddReceivingMiddleware(gosdk.Middleware(f.guard)) // without Protect
	var runs atomic.Int64
	for i := range 10 {
		f.typed(fmt.Sprint("t", i), readOnly, func(context.Context) error { runs.Add(1); return errBoom })
	}
	f.connect("")
	f.call("t9")
	assert.EqualValues(t, 4, runs.Load())
}

func TestWhatCounts(t *testing.T) {
	f := newServer(t, resilience.Config{}, nil, gosdk.Failure(nil), gosdk.Failure(func(res *mcp.CallToolResult) error {
		switch err := res.GetError(); {
		case err != nil:
			return err
		case res.Content[0].(*mcp.TextContent).Text == "empty":
			return nil // an answer
		default:
			return resilience.MarkInvalid(errors.New("the agent's mistake"))
		}
	}))
	say := func(s string) mcp.ToolHandler {
		return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: s}}}, nil
		}
	}
	f.raw("mistake", readOnly, say("mistake"))
	f.raw("answer", readOnly, say("empty"))
	f.raw("nothing", readOnly, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}
	})
	f.typed("own", nil, func(context.Context) error { return &resilience.Error{Code: resilience.CodeValidation, Message: "m"} })
	f.connect("")
	for range 10 {
		assert.Equal(t, resilience.CodeValidation, adviceOf(t, f.call("mistake")).Code)
		assert.NotContains(t, f.call("answer").Meta, resilience.MetaError)
		assert.Equal(t, resilience.CodeValidation, adviceOf(t, f.call("own")).Code)
		_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "nothing"})
		assert.Error(t, err)
	}
	for _, h := range f.guard.Health() {
		assert.Equal(t, resilience.Closed, h.State, h.Tool)
		assert.Zero(t, h.ConsecutiveFailures, h.Tool)
	}
}

// An agent's wrong arguments are refused by the SDK, and trip no breaker.
func TestWrongArguments(t *testing.T) {
	f := newServer(t, resilience.Config{})
	f.typed("typed", readOnly, func(context.Context) error { t.Error("called"); return nil })
	f.connect("")
	for range 10 {
		res, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "typed", Arguments: map[string]any{"n": "many"}})
		require.NoError(t, err)
		assert.Contains(t, text(t, res), `validating "arguments"`)
		assert.Equal(t, resilience.CodeValidation, adviceOf(t, res).Code)
	}
	assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newServer(t, resilience.Config{})
		f.typed("typed", nil, func(context.Context) error { return errBoom })
		f.connect("")
		for range 5 {
			assert.Equal(t, resilience.CodeToolFailed, adviceOf(t, f.call("typed")).Code)
		}
		a := adviceOf(t, f.call("typed"))
		assert.Equal(t, resilience.CodeCircuitOpen, a.Code)
		assert.True(t, a.Retryable)
		assert.Positive(t, a.RetryAfter)
	})
}

func TestWishes(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    []gosdk.Option
		meta    mcp.Meta
		code    resilience.Code
		details bool
	}{
		"not allowed":   {nil, mcp.Meta{resilience.MetaDebug: true, resilience.MetaLimit: 0.001}, resilience.CodeToolFailed, false},
		"debug":         {[]gosdk.Option{gosdk.AllowDebug()}, mcp.Meta{resilience.MetaDebug: true}, resilience.CodeToolFailed, true},
		"limit":         {[]gosdk.Option{gosdk.AllowLimit()}, mcp.Meta{resilience.MetaLimit: 0.001}, resilience.CodeTimeout, false},
		"too long":      {[]gosdk.Option{gosdk.AllowLimit()}, mcp.Meta{resilience.MetaLimit: 1e9}, resilience.CodeToolFailed, false},
		"no limit":      {[]gosdk.Option{gosdk.AllowLimit()}, mcp.Meta{resilience.MetaLimit: "soon"}, resilience.CodeValidation, false},
		"zero limit":    {[]gosdk.Option{gosdk.AllowLimit()}, mcp.Meta{resilience.MetaLimit: 0}, resilience.CodeValidation, false},
		"debug of text": {[]gosdk.Option{gosdk.AllowDebug()}, mcp.Meta{resilience.MetaDebug: "yes"}, resilience.CodeValidation, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newServer(t, resilience.Config{}, tc.opts...)
			f.raw("raw", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if d, _ := ctx.Deadline(); time.Until(d) < 30*time.Second {
					<-ctx.Done()
				}
				return nil, errBoom
			})
			f.connect("")
			a := adviceOf(t, f.call("raw", tc.meta))
			assert.Equal(t, tc.code, a.Code)
			assert.Equal(t, tc.details, a.Details != nil)
			if tc.details {
				assert.Equal(t, map[string]any{"n": 1.0}, a.Details["arguments"])
			}
		})
	}
}

// A tool whose only sign of life is the progress that it reports by the SDK.
func TestProgress(t *testing.T) {
	for _, withContext := range []bool{true, false} {
		t.Run(fmt.Sprintf("with its context %v", withContext), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newServer(t, resilience.Config{Tools: map[string]resilience.Tool{
					"long": {Timeout: time.Second, MaxTimeout: time.Minute, Effect: resilience.ReadOnly},
				}})
				var mu sync.Mutex
				var seen []float64
				f.options.ProgressNotificationHandler = func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, req.Params.Progress)
				}
				after := make(chan error, 1)
				f.raw("long", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					notify := func(p float64) error {
						nctx := ctx
						if !withContext {
							nctx = context.Background()
						}
						return req.Session.NotifyProgress(nctx, &mcp.ProgressNotificationParams{
							ProgressToken: req.Params.GetProgressToken(), Progress: p,
						})
					}
					for p := 1.0; p <= 5; p++ {
						select {
						case <-time.After(250 * time.Millisecond):
						case <-ctx.Done():
							return nil, errors.New("cut off")
						}
						if err := notify(p); err != nil {
							return nil, err
						}
						if p == 3 && resilience.Attempt(ctx) == 1 {
							return nil, errBoom // begins at the beginning
						}
					}
					go func() {
						<-ctx.Done() // the call has ended
						after <- notify(6)
					}()
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
				})
				f.connect("")
				params := &mcp.CallToolParams{Name: "long"}
				params.SetProgressToken("p1")
				res, err := f.session.CallTool(t.Context(), params)
				require.NoError(t, err)
				assert.False(t, res.IsError, "%v", res.Meta)
				if err := <-after; err != nil { // the call's context ends a moment before the call is over
					assert.ErrorIs(t, err, context.Canceled)
				}
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if withContext {
					assert.Equal(t, []float64{1, 2, 3, 4, 5}, seen, "it never falls, and ends with the call")
				} else {
					assert.Equal(t, []float64{1, 2, 3, 4, 5}, seen[:5], "it never falls")
				}
			})
		})
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newServer(t, resilience.Config{})
		started, stopped := make(chan struct{}), make(chan error, 1)
		f.typed("typed", readOnly, func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return ctx.Err()
		})
		f.connect("")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-started; cancel() }()
		_, err := f.session.CallTool(ctx, &mcp.CallToolParams{Name: "typed", Arguments: in{}})
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, <-stopped, resilience.CodeCanceled)
		synctest.Wait()
		assert.Zero(t, f.guard.Health()[0].InFlight)
		assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
	})
}

// A tool that asks its user something is neither hung nor failed, whoever puts the
// question: the client of a new protocol, or the SDK itself for one of an old.
func TestInputRequests(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newServer(t, resilience.Config{Tools: map[string]resilience.Tool{
					"ask": {Timeout: 500 * time.Millisecond, Effect: resilience.ReadOnly},
				}})
				asked := 0
				f.options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked++
					time.Sleep(700 * time.Millisecond) // a user who takes longer than the tool may
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ann"}}, nil
				}
				runs := 0
				f.raw("ask", nil, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					runs++
					if len(req.Params.InputResponses) == 0 {
						name := map[string]any{"name": map[string]any{"type": "string"}}
						question := &mcp.ElicitParams{
							Message: "Who?", RequestedSchema: map[string]any{"type": "object", "properties": name},
						}
						return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": question}}, nil
					}
					return nil, errBoom // to ask again would be worse
				})
				f.connect(protocol)
				res := f.call("ask")
				assert.True(t, res.IsError)
				assert.NotEqual(t, resilience.CodeTimeout, adviceOf(t, res).Code)
				assert.Equal(t, 1, asked)
				assert.Equal(t, 1, f.guard.Health()[0].ConsecutiveFailures, "the failure counts, the question doesn't")
			})
		})
	}
}

func TestRefuses(t *testing.T) {
	assert.PanicsWithValue(t, "resilience: gosdk: nil *Guard", func() { gosdk.Middleware(nil) })
	assert.PanicsWithValue(t, "resilience: gosdk: nil *Guard", func() { gosdk.ClientMiddleware(nil) })
	assert.PanicsWithValue(t, "resilience: gosdk: nil *mcp.Server", func() { gosdk.Protect(nil, nil) })
}
