package mcpgo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/mcpgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestElicitationIsNeitherRetriedNorCounted(t *testing.T) {
	if _, ok := any(elicitation()).(interface{ NeedsInput() bool }); !ok {
		t.Skip("this version of mcp-go has no results that ask for elicitation")
	}
	g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Breaker: resilience.BreakerConfig{Failures: 2}})
	fail := returns(nil, &resilience.Error{Message: "no"})
	_, err := mcpgo.Middleware(g)(fail)(t.Context(), request("x", nil, nil))
	require.NoError(t, err)
	for _, isError := range []bool{false, true} {
		var tries atomic.Int32
		asks := elicitation()
		asks.IsError = isError
		res, err := mcpgo.Middleware(g)(counted(&tries, returns(asks, nil)))(t.Context(), request("x", nil, nil))
		require.NoError(t, err)
		b, err := json.Marshal(res)
		require.NoError(t, err)
		assert.Contains(t, string(b), `"resultType":"input_required"`)
		assert.Contains(t, string(b), `"requestState":"asked"`)
		assert.NotContains(t, string(b), resilience.MetaError)
		assert.EqualValues(t, 1, tries.Load())
	}
	assert.Equal(t, 1, failures(t, g, "x"), "neither a failure nor a success")
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

			res, err := connect(t, s).CallTool(t.Context(), request("x", nil, nil))
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

			call := json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
			want, got := bare.HandleMessage(t.Context(), call), s.HandleMessage(t.Context(), call)
			assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "without the words around it")
			assert.EqualValues(t, 1, tries.Load())
			assert.Zero(t, failures(t, g, "x"))
		})
	}
}
