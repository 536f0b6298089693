package gosdk_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server that is too busy asks for nothing, and says so in one of two ways: the call hasn't succeeded.
func TestServerThatShedsLoadIsNoSuccess(t *testing.T) {
	const shed = `{"jsonrpc":"2.0","id":%%s,"result":{"resultType":"input_required","requestState":"later"%s}}`
	for name, requests := range map[string]string{"no requests": "", "empty requests": `,"inputRequests":{}`} {
		t.Run(name, func(t *testing.T) {
			h := serveHTTPWith(t, newServer(nil), &mcp.StreamableHTTPOptions{Stateless: true})
			g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
			client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, g)
			cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: h.URL}, speaking(latest))
			require.NoError(t, err)
			defer cs.Close()

			call := func() { _, _ = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"}) }
			h.refuse(refusal{503, ""}, `"tools/call"`)
			call()
			require.Equal(t, 1, g.Breaker("x").Failures())
			h.refuse(refusal{200, fmt.Sprintf(shed, requests)}, `"tools/call"`)
			call()
			assert.Equal(t, 1, g.Breaker("x").Failures())
		})
	}
}

// An error that a handler of the client's returns instead of an answer isn't the failure of the server that has asked:
// neither for a client with a guard, nor for one whose handlers pause, nor for a guard around the session.
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
				question := mcp.InputRequestMap{"q": askedOf["elicitation"].params}
				addRaw(server, &mcp.Tool{Name: "asks"}, returns(&mcp.CallToolResult{InputRequests: question}, nil))
				impl := &mcp.Implementation{Name: "c", Version: "1"}
				options := &mcp.ClientOptions{}
				options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return nil, fmt.Errorf("ask: %w", failure)
				}
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
