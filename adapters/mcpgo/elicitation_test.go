package mcpgo_test

import (
	"context"
	"encoding/json"
	"fmt"
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

func TestElicitationIsNeitherRetriedNorCounted(t *testing.T) {
	skipWithoutElicitation(t)
	g := newGuard(t, resilience.Config{
		Effect: resilience.ReadOnly, Breaker: resilience.BreakerConfig{Failures: 2},
	})
	s := newServer(g)
	var tries atomic.Int32
	handler := func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := elicitation()
		switch req.GetString("do", "") {
		case "fail":
			return nil, &resilience.Error{Message: "no"}
		case "ask with isError":
			res.IsError = true
		}
		return res, nil
	}
	s.AddTool(mcp.NewTool("x", readOnly), counted(&tries, handler))

	call := func(do string) string {
		meta := map[string]any{
			"io.modelcontextprotocol/protocolVersion":    modern,
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "c", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
		params := map[string]any{"name": "x", "arguments": map[string]any{"do": do}, "_meta": meta}
		result, code := handle(t.Context(), t, s, "tools/call", 1, params)
		assert.Zero(t, code)
		return string(result)
	}
	assert.Contains(t, call("fail"), string(resilience.CodeToolFailed))
	for _, do := range []string{"ask", "ask with isError"} {
		got := call(do)
		assert.Contains(t, got, `"resultType":"input_required"`)
		assert.Contains(t, got, `"requestState":"asked"`)
		assert.NotContains(t, got, resilience.MetaError)
	}
	assert.EqualValues(t, 3, tries.Load())
	assert.Equal(t, 1, failures(t, g, "x"), "neither a failure nor a success")
}

// For clients of older protocols mcp-go makes the request itself and then calls the tool again.
// That is a call of its own, and the user's time counts towards neither timeout.
func TestElicitationOfOlderClientTakesNoTimeOfTheCall(t *testing.T) {
	skipWithoutElicitation(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, resilience.Config{})
		s := newServer(g)
		var tries atomic.Int32
		handler := func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if answered(req) {
				return done, nil
			}
			return elicitation(), nil
		}
		s.AddTool(mcp.NewTool("x"), counted(&tries, handler))
		u := &user{}
		c := connect(t, s, u)

		res := callTool(t, c, "x", nil, nil)
		assert.Equal(t, "done", text(t, res))
		assert.EqualValues(t, 1, u.asked.Load())
		assert.EqualValues(t, 2, tries.Load())
		assert.Zero(t, failures(t, g, "x"))
	})
}

// A retry would repeat the question, however the attempt ends that has paused its timeout for it.
func TestToolThatHasPausedIsNotCalledAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		then     server.ToolHandlerFunc // what the tool does after the question
		classify func(error) resilience.Class
	}{
		"it fails":                   {then: fails},
		"it returns isError":         {then: returns(mcp.NewToolResultError("no"), nil)},
		"it exceeds AttemptTimeout":  {then: untilCanceled},
		"it cancels something":       {then: returns(nil, context.Canceled)},
		"it fails and had no effect": {then: returns(nil, resilience.MarkTransient(errBackend))},
		"it fails, Classify decides": {
			then:     returns(nil, resilience.MarkPermanent(errBackend)),
			classify: func(error) resilience.Class { return resilience.ClassTransient },
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := onlyX(resilience.Tool{Effect: resilience.ReadOnly, Retry: &steady})
			cfg.Classify = tc.classify
			cfg.AttemptTimeout = time.Second
			var got *resilience.Error
			cfg.Observers = []resilience.Observer{{
				End: func(_ context.Context, e resilience.CallEnd) { got = e.Err },
			}}
			g := newGuard(t, cfg)
			s := newServer(g)
			var asked atomic.Int32
			s.AddTool(mcp.NewTool("x"), func(
				ctx context.Context, req mcp.CallToolRequest,
			) (*mcp.CallToolResult, error) {
				resume := resilience.Pause(ctx)
				asked.Add(1)
				time.Sleep(time.Hour)
				resume()
				return tc.then(ctx, req)
			})

			_, _ = connect(t, s, nil).CallTool(t.Context(), request("x", nil, nil))
			assert.EqualValues(t, 1, asked.Load())
			require.NoError(t, g.Flush(t.Context()))
			require.NotNil(t, got)
			assert.False(t, got.Retryable, "an agent would repeat the question, too")
		})
	}
}

// A person takes longer than any timeout, or doesn't answer in time. Neither says anything of the backend.
func TestAskWaitsForPeopleAndBlamesNoBackend(t *testing.T) {
	for name, tc := range map[string]struct {
		patience time.Duration
		want     string
	}{
		"the user answers":               {2 * time.Hour, "accept"},
		"the user is asked for too long": {time.Minute, "internal error: ask the user: context deadline exceeded"},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, onlyX(resilience.Tool{Effect: resilience.ReadOnly}))
			s := newServer(g)
			var tries atomic.Int32
			s.AddTool(mcp.NewTool("x"), counted(&tries, func(
				ctx context.Context, _ mcp.CallToolRequest,
			) (*mcp.CallToolResult, error) {
				ctx, cancel := context.WithTimeout(ctx, tc.patience)
				defer cancel()
				answer, err := mcpgo.Ask(ctx, answerAfterAnHour, "Sure?")
				if err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					return nil, fmt.Errorf("ask the user: %w", err)
				}
				return mcp.NewToolResultText(answer), nil
			}))

			res, err := connect(t, s, nil).CallTool(t.Context(), request("x", nil, nil))
			if err != nil {
				assert.EqualError(t, err, tc.want)
			} else {
				assert.Equal(t, tc.want, text(t, res))
			}
			assert.EqualValues(t, 1, tries.Load())
			assert.Zero(t, failures(t, g, "x"))
		})
	}
}

func answerAfterAnHour(ctx context.Context, _ string) (string, error) {
	select {
	case <-time.After(time.Hour):
		return "accept", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// A tool may give people longer than it has itself, and ask again in vain: neither is a failure of its backend.
func TestTimeForPeopleThatIsLongerThanTheTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, onlyX(resilience.Tool{Timeout: 30 * time.Second}))
		s := newServer(g)
		s.AddTool(mcp.NewTool("x"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			defer resilience.Pause(ctx)()
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			for range 2 {
				if _, err := mcpgo.Ask(ctx, answerAfterAnHour, "Sure?"); ctx.Err() == nil {
					assert.NoError(t, err)
				}
			}
			_, err := mcpgo.Ask(ctx, answerAfterAnHour, "Sure?")
			return nil, err
		})
		begun := time.Now()
		_, err := connect(t, s, nil).CallTool(t.Context(), request("x", nil, nil))
		assert.ErrorContains(t, err, "context deadline exceeded")
		assert.Equal(t, 2*time.Minute, time.Since(begun))
		assert.Zero(t, failures(t, g, "x"))
	})
}

// The next attempt may ask the same.
func TestAbandonedAttemptAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := onlyX(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.AttemptTimeout = time.Second
		s := newServer(newGuard(t, cfg))
		var asked atomic.Int32
		s.AddTool(mcp.NewTool("x"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if resilience.Attempt(ctx) == 1 {
				time.Sleep(2 * time.Second) // ignores its context
			}
			_, err := mcpgo.Ask(ctx, func(context.Context, int) (int, error) { return int(asked.Add(1)), nil }, 0)
			assert.Equal(t, ctx.Err(), err)
			return done, err
		})
		res := callTool(t, connect(t, s, nil), "x", nil, nil)
		assert.Equal(t, "done", text(t, res))
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, asked.Load())
	})
}

// What a handler says around it is the text of a Go error.
func TestHiddenWordsAroundURLElicitation(t *testing.T) {
	required := mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{{
		Mode: mcp.ElicitationModeURL, ElicitationID: "e", URL: "https://example.com", Message: "Log in",
	}}}
	s := newServer(newGuard(t, resilience.Config{}), mcpgo.HideErrors())
	s.AddTool(mcp.NewTool("x"), returns(nil, fmt.Errorf("token of alice at 10.0.0.7: %w", required)))
	b, err := json.Marshal(s.HandleMessage(t.Context(),
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)))
	require.NoError(t, err)
	assert.NotContains(t, string(b), "10.0.0.7")
	assert.Contains(t, string(b), required.Error())
}

// Newer versions of mcp-go turn a handler's URLElicitationRequiredError into a request to the
// user. A guarded server answers as a bare one does.
func TestURLElicitationIsPassedOn(t *testing.T) {
	required := mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{{
		Mode: mcp.ElicitationModeURL, ElicitationID: "e", URL: "https://example.com", Message: "Log in",
	}}}
	for name, err := range map[string]error{
		"a value": required, "a pointer": &required, "wrapped": fmt.Errorf("github: %w", required),
	} {
		t.Run(name, func(t *testing.T) {
			bare := server.NewMCPServer("bare", "1")
			bare.AddTool(mcp.NewTool("x"), returns(nil, required))

			g := newGuard(t, resilience.Config{})
			s := newServer(g, mcpgo.HideErrors())
			var tries atomic.Int32
			s.AddTool(mcp.NewTool("x", readOnly), counted(&tries, returns(nil, err)))

			_, want := handle(t.Context(), t, bare, "tools/call", 1, map[string]any{"name": "x"})
			_, code := handle(t.Context(), t, s, "tools/call", 1, map[string]any{"name": "x"})
			assert.Equal(t, want, code)
			assert.EqualValues(t, 1, tries.Load())
			assert.Zero(t, failures(t, g, "x"))
		})
	}
}
