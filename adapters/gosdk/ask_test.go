//lint:file-ignore SA1019 clients still answer requests for sampling and roots
package gosdk_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"syscall"
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
						return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": askedOf["elicitation"].params}}, nil
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

// Only a question keeps a call from being made again, not what else a server sends.
func TestNotificationsOfAServerPauseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := asking(t, gosdk.Failure(gosdk.CountAll))
		runs := 0
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			runs++
			assert.NoError(t, gosdk.NotifyProgress(ctx, req, 1, 0, "so far"))
			synctest.Wait()
			return errorTextResult("no"), nil
		})
		f.connectClient(client, legacy)
		f.call("x", mcp.Meta{"progressToken": "p"})
		assert.Equal(t, 4, runs)
	})
}

// Middleware of a client's may make the SDK's request one of its own.
func TestRequestOfAClientsMiddlewareIsAnswered(t *testing.T) {
	for name, request := range map[string]func(*mcp.ClientSession, *mcp.CallToolParams) mcp.Request{
		"a client's": func(s *mcp.ClientSession, params *mcp.CallToolParams) mcp.Request {
			return &mcp.ClientRequest[*mcp.CallToolParams]{Session: s, Params: params}
		},
		"the SDK's": func(s *mcp.ClientSession, params *mcp.CallToolParams) mcp.Request {
			return &mcp.ClientRequest[mcp.Params]{Session: s, Params: params}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := asking(t, gosdk.Failure(gosdk.CountAll))
				questions := 0
				f.raw("x", nil, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if len(req.Params.InputResponses) > 0 {
						return errorTextResult("no"), nil
					}
					questions++
					return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": askedOf["roots"].params}}, nil
				})
				client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if params, ok := req.GetParams().(*mcp.CallToolParams); ok {
							req = request(req.GetSession().(*mcp.ClientSession), params)
						}
						return next(ctx, method, req)
					}
				})
				f.connectClient(client, latest)
				assert.Equal(t, "no", text(t, f.call("x")))
				assert.Equal(t, 1, questions)
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

// What a handler of the client's returns instead of an answer isn't the failure of the server that has asked, whoever
// looks at it: a client with a guard, one whose handlers pause, or a guard around the session.
func TestQuestionThatTheClientDoesNotAnswer(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, failure := range map[string]error{
		"its user leaves":               io.EOF,
		"its model is down":             refused,
		"its model breaks off":          syscall.ECONNRESET,
		"its user takes long":           context.DeadlineExceeded,
		"its model is another server's": fmt.Errorf(`calling "tools/call": %w`, io.EOF),
		"it says whose fault it is":     resilience.MarkBackend(refused),
		"it says so in our words":       resilience.ConnectionLostError("the model is down"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(nil)
				addRaw(server, &mcp.Tool{Name: "asks"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": askedOf["elicitation"].params}}, nil
				})
				impl := &mcp.Implementation{Name: "c", Version: "1"}
				options := &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return nil, fmt.Errorf("ask: %w", failure)
				}}
				g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: fast})
				for client, guarded := range map[*mcp.Client]bool{
					gosdk.NewClient(impl, options, g):             true,
					newClient(options, gosdk.ClientMiddleware(g)): true,
					newClient(options):                            false,
				} {
					s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
						_, clientEnd, err := pipeTo(server)
						require.NoError(t, err)
						return client.Connect(ctx, pipeTransport(clientEnd), speaking(latest))
					}, sessionConfig{})
					first, begin := up(t, s), time.Now()
					call := func(ctx context.Context) (*mcp.CallToolResult, error) {
						return s.CallTool(ctx, &mcp.CallToolParams{Name: "asks"})
					}
					_, err := call(t.Context())
					if !guarded {
						_, err = resilience.Do(t.Context(), g, "asks", call)
					}
					require.ErrorIs(t, err, failure)
					assert.Zero(t, time.Since(begin), "neither waits nor retries")
					assert.Zero(t, g.Health()[0].ConsecutiveFailures)
					assert.Same(t, first, up(t, s))
					require.NoError(t, s.Close())
				}
			})
		})
	}
}
