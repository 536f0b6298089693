package mcpgo_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newTaskServer returns a server with a tool x, and its guard, which has a timeout of one second.
// An empty support means that the tool doesn't mention tasks.
func newTaskServer(
	t *testing.T, support mcp.TaskSupport, handler server.ToolHandlerFunc, opts ...mcpgo.Option,
) (*server.MCPServer, *resilience.Guard) {
	t.Helper()
	g := newGuard(t, resilience.Config{Timeouts: resilience.Timeouts{resilience.Quick: time.Second}})
	s := newServer(g, opts...)
	tool := mcp.NewTool("x", readOnly)
	if support != "" {
		tool = mcp.NewTool("x", readOnly, mcp.WithTaskSupport(support))
	}
	s.AddTool(tool, handler)
	return s, g
}

// taskState is what a client reads of a task's state.
type taskState struct {
	Status        string `json:"status"`
	StatusMessage string `json:"statusMessage"`
}

// startTask calls tool x as a task. It returns the parameters of requests about it.
func startTask(ctx context.Context, t *testing.T, s *server.MCPServer) map[string]any {
	t.Helper()
	params := map[string]any{"name": "x", "task": map[string]any{}}
	result, code := handle(ctx, t, s, "tools/call", 1, params)
	require.Zero(t, code)
	created := parse[struct {
		Task struct {
			TaskID string `json:"taskId"`
		} `json:"task"`
	}](t, result)
	return map[string]any{"taskId": created.Task.TaskID}
}

// A call that runs as a task has no timeout and no retries.
func TestTaskIsNotCounted(t *testing.T) {
	slow := func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(time.Minute)
		return done, nil
	}
	goexits := func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		runtime.Goexit()
		return done, nil
	}
	for name, tc := range map[string]struct {
		support mcp.TaskSupport
		handler server.ToolHandlerFunc
		want    taskState
	}{
		"outlives the timeout": {mcp.TaskSupportOptional, slow, taskState{Status: "completed"}},
		"fails":                {mcp.TaskSupportRequired, returns(nil, errBackend), taskState{"failed", errBackend.Error()}},
		"panics": {
			mcp.TaskSupportRequired, panics("secret"), taskState{"failed", "TOOL_FAILED: Tool 'x' failed"},
		},
		"ends its goroutine": {
			mcp.TaskSupportRequired, goexits, taskState{"failed", "TOOL_FAILED: Tool 'x' failed"},
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var tries atomic.Int32
			s, g := newTaskServer(t, tc.support, counted(&tries, tc.handler))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			task := startTask(ctx, t, s)
			time.Sleep(2 * time.Minute)
			result, code := handle(ctx, t, s, "tasks/get", 2, task)
			require.Zero(t, code)
			assert.Equal(t, tc.want, *parse[taskState](t, result))
			assert.EqualValues(t, 1, tries.Load())
			assert.Empty(t, g.Health())
		})
	}
}

// What a client of a task reads, it would also read without one.
func TestAnswerOfATask(t *testing.T) {
	secret := errors.New("login as app with password=hunter2x9 at 10.0.0.7")
	const scrubbed = "login as app with password=[REDACTED] at 10.0.0.7"
	own := &resilience.Error{
		Code: resilience.CodeValidation, Message: "no such branch", Details: map[string]any{"at": "10.0.0.7"},
	}
	wrapped := fmt.Errorf("at 10.0.0.7: %w", own)
	isError := returns(mcp.NewToolResultError(secret.Error()), nil)
	failed := func(message string) taskState { return taskState{"failed", message} }
	hidden, completed := failed("TOOL_FAILED: Tool 'x' failed"), taskState{Status: "completed"}

	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		option  mcpgo.Option
		want    taskState
		text    string          // of the result, if there is one
		code    resilience.Code // in its _meta
	}{
		"an error":                      {handler: returns(nil, secret), want: failed(scrubbed)},
		"an error, hidden":              {handler: returns(nil, secret), option: mcpgo.HideErrors(), want: hidden},
		"the author's error":            {handler: returns(nil, wrapped), want: failed(own.Error())},
		"a typed nil":                   {handler: returns(nil, (*typedNil)(nil)), want: hidden},
		"neither a result nor an error": {handler: returns(nil, nil), want: hidden},
		"isError":                       {handler: isError, want: completed, text: scrubbed},
		"isError, nothing to hide":      {handler: isError, option: mcpgo.HideErrors(), want: completed, text: scrubbed},
		"SetError":                      {handler: returns(failedResult(secret), nil), want: completed, text: scrubbed},
		"SetError, hidden": {
			handler: returns(failedResult(secret), nil), option: mcpgo.HideErrors(), want: hidden,
		},
		"SetError, the author's": {
			handler: returns(failedResult(own), nil), want: completed, text: own.Error(), code: own.Code,
		},
		"no failure": {
			handler: returns(mcp.NewToolResultText(secret.Error()), nil), want: completed, text: secret.Error(),
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s, _ := newTaskServer(t, mcp.TaskSupportOptional, tc.handler, tc.option)
			task := startTask(t.Context(), t, s)
			synctest.Wait()

			state, code := handle(t.Context(), t, s, "tasks/get", 2, task)
			require.Zero(t, code)
			assert.Equal(t, tc.want, *parse[taskState](t, state))

			result, code := handle(t.Context(), t, s, "tasks/result", 3, task)
			if tc.text == "" {
				assert.Equal(t, mcp.INTERNAL_ERROR, code)
				return
			}
			res := parse[mcp.CallToolResult](t, result)
			assert.Equal(t, tc.text, text(t, res))
			assert.Equal(t, tc.code, errorIn(t, res).Code)
			if tc.code != "" {
				assert.NotContains(t, string(result), "10.0.0.7", "details are for debugging")
			}
		})
	}
}

// A write must not be repeated blindly, whether it was a task or not.
func TestErrorOfATaskThatMayHaveTakenEffect(t *testing.T) {
	const check = "The outcome of this call is unknown: check whether it took effect before you call this tool again."
	const wait = "Wait for the connection to come back, then try again."
	lost := resilience.ConnectionLostError("the ledger has closed it")
	write, read := resilience.Tool{Effect: resilience.NonIdempotent}, resilience.Tool{Effect: resilience.ReadOnly}
	for name, tc := range map[string]struct {
		cfg        resilience.Config
		hint       mcp.ToolOption
		err        error
		suggestion string
	}{
		"a write, listed":      {onlyX(write), readOnly, lost, check},
		"a write, by its hint": {resilience.Config{}, mcp.WithReadOnlyHintAnnotation(false), lost, check},
		"a write, by AsError":  {onlyX(write), readOnly, resilience.AsError("ledger", errBackend), check},
		"a write, marked":      {onlyX(write), readOnly, errBackend, check},
		"a read, listed":       {onlyX(read), mcp.WithReadOnlyHintAnnotation(false), lost, wait},
		"a read, by its hint":  {resilience.Config{}, readOnly, lost, wait},
		"the author's words": {
			onlyX(write), readOnly, &resilience.Error{Code: "BUSY", Suggestion: "Mine.", Retryable: true}, "Mine.",
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s := newServer(newGuard(t, tc.cfg))
			tool := mcp.NewTool("x", tc.hint, mcp.WithTaskSupport(mcp.TaskSupportOptional))
			s.AddTool(tool, returns(failedResult(tc.err), nil))
			task := startTask(t.Context(), t, s)
			synctest.Wait()
			result, code := handle(t.Context(), t, s, "tasks/result", 2, task)
			require.Zero(t, code)
			e := errorIn(t, parse[mcp.CallToolResult](t, result))
			assert.Equal(t, tc.suggestion, e.Suggestion)
			assert.Equal(t, tc.suggestion != check, e.Retryable)
		})
	}
}

// A task's error may say that its backend is in trouble. What the backend itself says is heard of calls only.
func TestTroubleOfATasksBackend(t *testing.T) {
	busy := resilience.MarkBackend(errBackend)
	fails := func(err error) server.ToolHandlerFunc {
		return func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			resilience.ReportBackend(ctx, busy)
			res := mcp.NewToolResultError("search failed")
			mcpgo.SetError(res, err)
			return res, nil
		}
	}
	for name, tc := range map[string]struct {
		err            error
		ofCall, ofTask bool // there is guidance
	}{
		"the error says so":   {busy, true, true},
		"the backend says so": {errors.New("search failed"), true, false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s, _ := newTaskServer(t, mcp.TaskSupportOptional, fails(tc.err))
			res, code := handle(t.Context(), t, s, "tools/call", 1, map[string]any{"name": "x"})
			require.Zero(t, code)
			assert.Equal(t, tc.ofCall, strings.Contains(string(res), resilience.MetaError))

			task := startTask(t.Context(), t, s)
			time.Sleep(time.Minute)
			res, code = handle(t.Context(), t, s, "tasks/result", 2, task)
			require.Zero(t, code)
			assert.Contains(t, string(res), "search failed")
			assert.Equal(t, tc.ofTask, strings.Contains(string(res), resilience.MetaError))
		})
	}
}

// A client must not reach what is out of service by asking for a task.
func TestTaskThatTheGuardRejects(t *testing.T) {
	const key = "a"
	byKey := mcpgo.BreakerKey(func(context.Context, mcp.CallToolRequest) string { return key })
	keyed := func(g *resilience.Guard) *resilience.Breaker {
		_ = g.Rejection("x", resilience.BreakerKey(key))
		return g.Breakers()[slices.IndexFunc(g.Breakers(), func(b *resilience.Breaker) bool { return b.Key() == key })]
	}
	const isolated = "CIRCUIT_OPEN: 'x' is taken out of service: maintenance"
	const down = "SHUTTING_DOWN: The server is shutting down"
	const isolatedKey = "CIRCUIT_OPEN: 'x/a' is taken out of service"
	const open = "CIRCUIT_OPEN: Circuit breaker open due to repeated failures. Calls are rejected for 60 more seconds."
	for name, tc := range map[string]struct {
		before func(*resilience.Guard)
		option mcpgo.Option
		want   string // "" means that it begins
	}{
		"isolated":         {before: func(g *resilience.Guard) { g.Breaker("x").Isolate("maintenance") }, want: isolated},
		"isolated, a key":  {func(g *resilience.Guard) { g.Breaker("x").Isolate("maintenance") }, byKey, isolated},
		"open":             {before: func(g *resilience.Guard) { g.Breaker("x").Trip(time.Minute) }, want: open},
		"its key's":        {func(g *resilience.Guard) { keyed(g).Isolate("") }, byKey, isolatedKey},
		"another one's":    {before: func(g *resilience.Guard) { keyed(g).Isolate("") }},
		"a guard's end":    {before: func(g *resilience.Guard) { _, _ = g.Close(context.Background()) }, want: down},
		"nothing is wrong": {before: func(*resilience.Guard) {}},
		"after the cooldown": {before: func(g *resilience.Guard) {
			g.Breaker("x").Trip(time.Minute)
			time.Sleep(time.Minute)
		}},
		"a key function that panics": {
			func(*resilience.Guard) {}, mcpgo.BreakerKey(func(context.Context, mcp.CallToolRequest) string { panic(1) }), "",
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			var calls atomic.Int32
			s, g := newTaskServer(t, mcp.TaskSupportOptional, counted(&calls, returns(done, nil)), tc.option)
			tc.before(g)
			for range 2 { // it is no probe
				task := startTask(t.Context(), t, s)
				synctest.Wait()
				state, code := handle(t.Context(), t, s, "tasks/get", 2, task)
				require.Zero(t, code)
				want := taskState{Status: "completed"}
				if tc.want != "" {
					want = taskState{"failed", tc.want}
				}
				assert.Equal(t, want, *parse[taskState](t, state))
			}
			assert.Equal(t, tc.want == "", calls.Load() == 2)
		})
	}
}

// Without the guard, mcp-go would take an error that matches those of contexts for the client's cancellation, and
// answer with an empty result.
func TestTaskThatTheGuardFailsIsNotCanceled(t *testing.T) {
	deadline := fmt.Errorf("get: %w", context.DeadlineExceeded)
	timeout := &resilience.Error{Code: resilience.CodeTimeout, Message: "m", Err: errBackend}
	hide := mcpgo.HideErrors()
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		option  mcpgo.Option
		cause   error
	}{
		"a panic, deadline":     {handler: panics(deadline)},
		"a panic, canceled":     {handler: panics(fmt.Errorf("get: %w", context.Canceled))},
		"the author's timeout":  {handler: returns(nil, timeout), cause: errBackend},
		"hidden":                {handler: returns(nil, deadline), option: hide},
		"a hidden result":       {handler: returns(failedResult(deadline), nil), option: hide},
		"a hidden cancellation": {handler: returns(failedResult(context.Canceled), nil), option: hide},
		"no answer":             {handler: returns(nil, nil)},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s, _ := newTaskServer(t, mcp.TaskSupportRequired, tc.handler, tc.option)
			var failed error
			server.WithTaskHooks(&server.TaskHooks{OnTaskFailed: []server.OnTaskFailedHookFunc{
				func(_ context.Context, m server.TaskMetrics) { failed = m.Error },
			}})(s)
			task := startTask(t.Context(), t, s)
			synctest.Wait()

			state, code := handle(t.Context(), t, s, "tasks/get", 2, task)
			require.Zero(t, code)
			assert.Equal(t, "failed", parse[taskState](t, state).Status)
			_, code = handle(t.Context(), t, s, "tasks/result", 3, task)
			assert.Equal(t, mcp.INTERNAL_ERROR, code)

			var e *resilience.Error
			require.ErrorAs(t, failed, &e)
			assert.Equal(t, e.Error(), failed.Error())
			if tc.cause != nil {
				assert.ErrorIs(t, failed, tc.cause)
			}
		})
	}
}

func TestTaskThatItsClientHasCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := make(chan struct{})
		s, _ := newTaskServer(t, mcp.TaskSupportRequired, func(
			context.Context, mcp.CallToolRequest,
		) (*mcp.CallToolResult, error) {
			<-returned
			return nil, context.Canceled
		}, mcpgo.HideErrors())
		task := startTask(t.Context(), t, s)
		synctest.Wait()
		_, code := handle(t.Context(), t, s, "tasks/cancel", 2, task)
		require.Zero(t, code)
		close(returned)
		synctest.Wait()

		state, code := handle(t.Context(), t, s, "tasks/get", 3, task)
		require.Zero(t, code)
		assert.Equal(t, "cancelled", parse[taskState](t, state).Status)
	})
}

func TestCallThatIsNoTaskIsGuarded(t *testing.T) {
	asTask := map[string]any{"name": "x", "task": map[string]any{}}
	for name, tc := range map[string]struct {
		support mcp.TaskSupport
		params  map[string]any
	}{
		"the tool forbids tasks":            {mcp.TaskSupportForbidden, asTask},
		"the tool doesn't mention tasks":    {"", asTask},
		"the client doesn't ask for a task": {mcp.TaskSupportOptional, map[string]any{"name": "x"}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s, g := newTaskServer(t, tc.support, fails)
			result, code := handle(t.Context(), t, s, "tools/call", 1, tc.params)
			require.Zero(t, code)
			res := parse[mcp.CallToolResult](t, result)
			assert.Equal(t, resilience.CodeRetryExhausted, errorIn(t, res).Code)
			assert.Equal(t, 1, failures(t, g, "x"))
		})
	}
}

// A panickingIs compares itself with any error as if that were of its own type.
type panickingIs struct{ code int }

func (panickingIs) Error() string          { return "mine" }
func (e panickingIs) Is(target error) bool { return target.(panickingIs).code == e.code }

// mcp-go asks the error of a task what it is, on a goroutine without recover.
func TestTaskWhoseErrorPanicsWhenItIsAsked(t *testing.T) {
	for name, err := range map[string]error{
		"its own": panickingIs{1}, "wrapped": fmt.Errorf("w: %w", panickingIs{1}),
		"in an *Error": &resilience.Error{Code: "MINE", Message: "m", Err: panickingIs{1}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			s, _ := newTaskServer(t, mcp.TaskSupportRequired, returns(nil, err))
			task := startTask(t.Context(), t, s)
			synctest.Wait()
			state, code := handle(t.Context(), t, s, "tasks/get", 2, task)
			require.Zero(t, code)
			assert.Equal(t, "failed", parse[taskState](t, state).Status)
		})
	}
}

// The handler of a task may change its request while hooks read it.
func TestTaskHasACopyOfItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outer mcp.CallToolRequest
		keep := func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
			return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				outer = req
				return next(ctx, req)
			}
		}
		s := server.NewMCPServer("test", "1", server.WithTaskCapabilities(true, true, true),
			server.WithToolHandlerMiddleware(keep), server.WithToolHandlerMiddleware(mcpgo.Middleware(newGuard(t, resilience.Config{}))))
		s.AddTool(mcp.NewTool("x", mcp.WithTaskSupport(mcp.TaskSupportOptional)),
			func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				req.GetArguments()["mine"] = 1
				return done, nil
			})
		params := map[string]any{"name": "x", "arguments": map[string]any{"a": 1}, "task": map[string]any{}}
		handle(t.Context(), t, s, "tools/call", 1, params)
		synctest.Wait()
		assert.Equal(t, map[string]any{"a": 1.0}, outer.GetArguments())
	})
}
