//lint:file-ignore SA1019 clients still answer requests for sampling
package gosdk_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asking returns a fixture whose guarded client takes its time to answer.
func asking(t *testing.T, opts ...gosdk.Option) (*fixture, *mcp.Client) {
	f := newFixture(t, resilience.Config{Effect: resilience.ReadOnly}, nil)
	f.addAsking("elicitation")
	answers := &mcp.ClientOptions{}
	answerAfter(answers, thinks)
	return f, gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, answers, f.guard, opts...)
}

// Older protocols don't tell which call a question belongs to.
func TestQuestionPausesAllCallsOfItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := asking(t)
		f.raw("works", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(thinks + 5*time.Second)
			return textResult("worked"), nil
		})
		f.raw("quick", nil, returns(textResult("fine"), nil))
		f.connectClient(client, legacy)

		worked := make(chan error, 1)
		go func() {
			_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "works"})
			worked <- err
		}()
		time.Sleep(time.Second)
		assert.Equal(t, "fine", text(t, f.call("quick")))
		assert.Equal(t, "answered", text(t, f.call("asks")))
		require.NoError(t, <-worked)
	})
}

// A tool has its timeout before and after the question.
func TestTimeoutGoesOnAfterTheAnswer(t *testing.T) {
	for _, protocol := range []string{latest, legacy} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := asking(t)
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if protocol == latest && len(req.Params.InputResponses) == 0 {
						question := mcp.InputRequestMap{"q": askedOf["elicitation"].params}
						return &mcp.CallToolResult{InputRequests: question}, nil
					}
					if protocol == legacy {
						assert.NoError(t, askedOf["elicitation"].ask(ctx, req.Session))
					}
					<-ctx.Done()
					return nil, ctx.Err()
				})
				f.connectClient(client, protocol)
				begin := time.Now()
				_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
				require.ErrorIs(t, err, resilience.CodeTimeout)
				assert.LessOrEqual(t, time.Since(begin), thinks+time.Minute)
			})
		})
	}
}

// A tool may give people longer than it has itself.
func TestTimeForPeopleThatIsLongerThanTheTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: 30 * time.Second}}})
		away := make(chan struct{})
		f.options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			<-away
			return &mcp.ElicitResult{Action: "cancel"}, nil
		}
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			defer resilience.Pause(ctx)()
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			_, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Sure?"})
			return nil, err
		})
		f.connect(legacy)
		begun := time.Now()
		_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
		assert.ErrorContains(t, err, "deadline exceeded")
		assert.LessOrEqual(t, time.Since(begun), 2*time.Minute+time.Second)
		assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
		close(away)
	})
}

// A client may sample with tools.
func TestSamplingWithToolsPausesTheCall(t *testing.T) {
	for _, protocol := range []string{latest, legacy} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, resilience.Config{}, nil)
				f.addAsking("sampling")
				client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
					CreateMessageWithToolsHandler: func(
						context.Context, *mcp.CreateMessageWithToolsRequest,
					) (*mcp.CreateMessageWithToolsResult, error) {
						time.Sleep(thinks)
						return &mcp.CreateMessageWithToolsResult{
							Role: "assistant", Model: "m", Content: []mcp.Content{&mcp.TextContent{Text: "yes"}},
						}, nil
					},
				}, f.guard)
				f.connectClient(client, protocol)
				assert.Equal(t, "answered", text(t, f.call("returns questions")))
			})
		})
	}
}

// A client may have many sessions, one after the other.
func TestNothingOfASessionOutlivesIt(t *testing.T) {
	f, client := asking(t)
	f.raw("x", nil, returns(textResult("fine"), nil))
	call := func() weak.Pointer[mcp.ClientSession] {
		serverSide, clientSide := mcp.NewInMemoryTransports()
		_, err := f.server.Connect(t.Context(), serverSide, nil)
		require.NoError(t, err)
		session, err := client.Connect(t.Context(), clientSide, speaking(legacy))
		require.NoError(t, err)
		_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
		require.NoError(t, err)
		require.NoError(t, session.Close())
		return weak.Make(session)
	}
	first := call()
	call()
	none := func() bool { runtime.GC(); return first.Value() == nil }
	require.Eventually(t, none, testTimeout, 10*time.Millisecond)
	runtime.KeepAlive(client)
}
