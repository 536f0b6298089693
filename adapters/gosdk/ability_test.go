//lint:file-ignore SA1019 servers still ask for sampling and roots
package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A client without an ability, or with answers that don't fit, shuts a tool for no other client, whatever counts.
func TestWhatTheSDKSaysOfAClientCountsForNoTool(t *testing.T) {
	type ask = func(context.Context, *mcp.ServerSession) error
	elicit := func(params mcp.ElicitParams) ask {
		return func(ctx context.Context, s *mcp.ServerSession) error {
			_, err := s.Elicit(ctx, &params)
			return err
		}
	}
	number := map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "number"}}}
	form, url := &mcp.FormElicitationCapabilities{}, &mcp.URLElicitationCapabilities{}
	able := func(c mcp.ElicitationCapabilities) *mcp.ClientCapabilities {
		return &mcp.ClientCapabilities{Elicitation: &c}
	}
	answer := func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"n": "many"}}, nil
	}
	sample := func(
		context.Context, *mcp.CreateMessageWithToolsRequest,
	) (*mcp.CreateMessageWithToolsResult, error) {
		text := &mcp.TextContent{Text: "yes"}
		return &mcp.CreateMessageWithToolsResult{Model: "m", Role: "assistant", Content: []mcp.Content{text, text}}, nil
	}

	for name, tc := range map[string]struct {
		protocol string
		client   mcp.ClientOptions
		ask      ask
	}{
		"no elicitation": {legacy, mcp.ClientOptions{}, elicit(mcp.ElicitParams{Message: "Sure?"})},
		"no form": {
			legacy, mcp.ClientOptions{ElicitationHandler: answer, Capabilities: able(mcp.ElicitationCapabilities{URL: url})},
			elicit(mcp.ElicitParams{Message: "Sure?"}),
		},
		"no url": {
			legacy, mcp.ClientOptions{ElicitationHandler: answer, Capabilities: able(mcp.ElicitationCapabilities{Form: form})},
			elicit(mcp.ElicitParams{Message: "Sure?", Mode: "url", URL: "https://example.com", ElicitationID: "1"}),
		},
		"a protocol without requests": {latest, mcp.ClientOptions{}, elicit(mcp.ElicitParams{Message: "Sure?"})},
		"sampling, the same": {latest, mcp.ClientOptions{}, func(ctx context.Context, s *mcp.ServerSession) error {
			_, err := s.CreateMessage(ctx, &mcp.CreateMessageParams{})
			return err
		}},
		"roots, the same": {latest, mcp.ClientOptions{}, func(ctx context.Context, s *mcp.ServerSession) error {
			_, err := s.ListRoots(ctx, nil)
			return err
		}},
		"a bad answer": {
			legacy, mcp.ClientOptions{ElicitationHandler: answer},
			elicit(mcp.ElicitParams{Message: "Sure?", RequestedSchema: number}),
		},
		"a longer answer": {
			legacy, mcp.ClientOptions{CreateMessageWithToolsHandler: sample},
			func(ctx context.Context, s *mcp.ServerSession) error {
				_, err := s.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1})
				return err
			},
		},
	} {
		for count, failure := range map[string]gosdk.FailureFunc{"errors": gosdk.CountErrors, "all": gosdk.CountAll} {
			t.Run(name+", "+count, func(t *testing.T) {
				var said error
				f := newProtected(t, resilience.Config{}, gosdk.Failure(failure))
				f.options = tc.client
				mcp.AddTool(f.server, &mcp.Tool{Name: "x"}, func(
					ctx context.Context, req *mcp.CallToolRequest, _ struct{},
				) (*mcp.CallToolResult, any, error) {
					said = tc.ask(ctx, req.Session)
					return nil, nil, fmt.Errorf("ask: %w", said)
				})
				f.connect(tc.protocol)
				assert.NotContains(t, f.order("x", nil).Meta, resilience.MetaError)
				require.Error(t, said)
				assert.Zero(t, f.guard.Breaker("x").Failures(), said)
			})
		}
	}
}

// severalErrors are errors that a tool has joined by itself.
type severalErrors []error

func (severalErrors) Error() string     { return "several" }
func (e severalErrors) Unwrap() []error { return e }

// A withStack is what libraries of errors wrap an error in that keeps its text, to say where it came from.
type withStack struct{ error }

func (w *withStack) Unwrap() error { return w.error }

// What the author of a tool says stands, and what else has failed counts. That the backend is in trouble, too, which
// makes an error of a handler of the low-level API count, doesn't make it one of the backend's.
func TestErrorThatOnlyMentionsAClient(t *testing.T) {
	unable := errors.New("client does not support elicitation")
	for name, tc := range map[string]struct {
		err    error
		counts bool
	}{
		"alone":                 {unable, false},
		"wrapped twice":         {fmt.Errorf("a: %w", fmt.Errorf("b: %w", unable)), false},
		"with a stack":          {&withStack{unable}, false},
		"with a stack, wrapped": {fmt.Errorf("a: %w", &withStack{fmt.Errorf("b: %w", unable)}), false},
		"with a stack, marked":  {&withStack{resilience.MarkBackend(unable)}, true},
		"marked, with a stack":  {resilience.MarkTransient(&withStack{unable}), true},
		"marked":                {resilience.MarkBackend(unable), true},
		"marked, wrapped":       {fmt.Errorf("a: %w", resilience.MarkBackend(unable)), true},
		"in the author's":       {&resilience.Error{Code: "BUSY", Retryable: true, Err: unable}, true},
		"joined with none":      {errors.Join(nil, unable), false},
		"joined, wrapped":       {fmt.Errorf("a: %w", errors.Join(fmt.Errorf("b: %w", unable), nil)), false},
		"joined, marked":        {errors.Join(resilience.MarkBackend(unable), nil), true},
		"joined with nil":       {severalErrors{nil}, true},
		"no errors":             {severalErrors{}, true},
		"with another":          {errors.Join(unable, errors.New("no luck")), true},
		"something like it":     {errors.New("the client does not support elicitation"), true},
	} {
		f := newProtected(t, resilience.Config{}, gosdk.Failure(gosdk.CountErrors))
		f.typed("x", nil, func(context.Context) error { return tc.err })
		f.raw("raw", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			resilience.ReportBackend(ctx, resilience.MarkBackend(errBoom))
			return nil, tc.err
		})
		f.connect("")
		for _, tool := range []string{"x", "raw"} {
			_, _ = f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"n": 1}})
			assert.Equal(t, tc.counts, f.guard.Breaker(tool).Failures() == 1, "%s, %s", name, tool)
		}
	}
}
