//lint:file-ignore SA1019 servers still log
package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
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

// A shop is the backend of a tool, behind HTTP without a network. It has the item "lamp", and takes the
// token "good".
type shop struct {
	client   *http.Client
	requests atomic.Int32

	// answer takes the place of what the shop would say. Nil is none.
	answer func(*http.Request) (*http.Response, error)
}

func newShop() *shop {
	s := &shop{}
	s.client = &http.Client{Transport: resilience.Transport(s)}
	return s
}

func (s *shop) RoundTrip(req *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	switch {
	case s.answer != nil:
		return s.answer(req)
	case req.Header.Get("Token") != "good":
		return reply(401)
	case !strings.HasSuffix(req.URL.Path, "/lamp"):
		return reply(404)
	}
	return reply(200)
}

func reply(status int, headers ...string) (*http.Response, error) {
	res := &http.Response{StatusCode: status, Status: http.StatusText(status), Header: make(http.Header)}
	res.Body = io.NopCloser(strings.NewReader("a lamp"))
	for i := 0; i < len(headers); i += 2 {
		res.Header.Set(headers[i], headers[i+1])
	}
	return res, nil
}

// An order is what clients ask the tool for.
type order struct {
	Item  string `json:"item"`
	Token string `json:"token,omitempty"`
}

// find is a tool as most are: it makes a text of whatever the shop says.
func (s *shop) find(method string) func(context.Context, *mcp.CallToolRequest, order) (*mcp.CallToolResult, any, error) {
	return func(ctx context.Context, _ *mcp.CallToolRequest, in order) (*mcp.CallToolResult, any, error) {
		req, err := http.NewRequestWithContext(ctx, method, "http://shop.example/"+in.Item, nil)
		if err != nil {
			return nil, nil, err
		}
		req.Header.Set("Token", in.Token)
		res, err := s.client.Do(req)
		if err != nil {
			return nil, nil, err
		}
		defer res.Body.Close()
		if res.StatusCode != 200 {
			return errorTextResult(fmt.Sprintf("the shop says %d", res.StatusCode)), nil, nil
		}
		return textResult("a lamp"), nil, nil
	}
}

// shopFixture returns a server with the tools "find" and "buy" under a default guard, and a client.
func shopFixture(t *testing.T) (*fixture, *shop) {
	f := newProtected(t, resilience.Config{Retry: resilience.Retry{MaxRetries: 3}})
	s := newShop()
	mcp.AddTool(f.server, &mcp.Tool{Name: "find", Annotations: readOnly}, s.find("GET"))
	mcp.AddTool(f.server, &mcp.Tool{Name: "buy"}, s.find("POST"))
	return f, s
}

func (f *fixture) order(tool string, args any) *mcp.CallToolResult {
	f.Helper()
	res, err := f.session.CallTool(f.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(f, err)
	return res
}

// A mistake costs its own call only, takes one request, and comes back in the tool's own words.
func TestMistakesOfAgentsShutNoTool(t *testing.T) {
	good := order{"lamp", "good"}
	for name, tc := range map[string]struct {
		args     any
		says     string
		requests int32 // of each call
	}{
		"a missing parameter":       {map[string]any{"token": "good"}, `missing properties: ["item"]`, 0},
		"something that isn't":      {order{"sofa", "good"}, "the shop says 404", 1},
		"one user's bad token":      {order{"lamp", "bad"}, "the shop says 401", 1},
		"a parameter of no meaning": {order{"\x7f", "good"}, "invalid control character", 0},
	} {
		for _, tool := range []string{"find", "buy"} {
			t.Run(name+", "+tool, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, s := shopFixture(t)
					f.connect("")
					start := time.Now()
					for range 100 {
						res := f.order(tool, tc.args)
						assert.True(t, res.IsError)
						require.Len(t, res.Content, 1, "there is no guidance")
						assert.Contains(t, text(t, res), tc.says)
						assert.NotContains(t, res.Meta, resilience.MetaError)
					}
					assert.Equal(t, 100*tc.requests, s.requests.Load())
					assert.Zero(t, time.Since(start))
					assert.Equal(t, "a lamp", text(t, f.order(tool, good)), "another user's call")
				})
			})
		}
	}
}

func TestTroubleOfABackendIsSaid(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	page := func(status int, headers ...string) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) { return reply(status, headers...) }
	}
	const read, write = "find", "buy"
	for name, tc := range map[string]struct {
		tool     string
		answer   func(*http.Request) (*http.Response, error)
		says     string
		code     resilience.Code
		after    int // in seconds
		requests int32
	}{
		"500, read":  {read, page(500), "the shop says 500", resilience.CodeRetryExhausted, 0, 4},
		"500, write": {write, page(500), "the shop says 500", resilience.CodeToolFailed, 0, 1},
		"429":        {read, page(429, "Retry-After", "7"), "the shop says 429", resilience.CodeToolFailed, 7, 1},
		"429, write": {write, page(429, "Retry-After", "7"), "the shop says 429", resilience.CodeToolFailed, 7, 1},
		"503":        {read, page(503, "Retry-After", "20"), "the shop says 503", resilience.CodeToolFailed, 20, 1},
		"rate limit": {read, page(403, "Retry-After", "60"), "the shop says 403", resilience.CodeToolFailed, 60, 1},
		"refused": {
			write, func(*http.Request) (*http.Response, error) { return nil, refused },
			"connection refused", resilience.CodeRetryExhausted, 0, 4,
		},
		"it hangs, under a client with a timeout": {
			read, func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			},
			"deadline exceeded", resilience.CodeTimeout, 0, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, s := shopFixture(t)
				s.answer, s.client.Timeout = tc.answer, 10*time.Second
				f.connect("")

				start := time.Now()
				res := f.order(tc.tool, order{"lamp", "good"})
				assert.Contains(t, text(t, res), tc.says)
				require.Len(t, res.Content, 2)
				m := metadataOf(t, res)
				assert.Equal(t, tc.code, m.Code)
				assert.Equal(t, tc.after, m.RetryAfter)
				assert.JSONEq(t, jsonOf(t, res.Meta[resilience.MetaError]), res.Content[1].(*mcp.TextContent).Text)
				assert.Equal(t, tc.requests, s.requests.Load())
				assert.LessOrEqual(t, time.Since(start), s.client.Timeout)
				for _, h := range f.guard.Health() {
					assert.Equal(t, h.Tool == tc.tool, h.ConsecutiveFailures == 1, h.Tool)
				}
			})
		})
	}
}

// An author's own words and time stand, and no call waits for longer than the longest delay.
func TestOwnErrorWithATimeIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{Retry: resilience.Retry{MaxRetries: 3}})
		f.typed("x", readOnly, func(context.Context) error {
			return &resilience.Error{Message: "The queue is full", Retryable: true, RetryAfter: 2 * time.Second}
		})
		f.connect("")
		start := time.Now()
		res := f.call("x")
		assert.Zero(t, time.Since(start))
		assert.Contains(t, text(t, res), "The queue is full")
		assert.Equal(t, 2, metadataOf(t, res).RetryAfter)
	})
}

// Each of these is an error for the client that can't, and for nobody else.
func TestWhatOneClientCannotDoHoldsUpNoOther(t *testing.T) {
	forbidden := errors.New("this user may not do that")
	for name, tool := range map[string]mcp.ToolHandler{
		"it can't be asked": func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if _, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Sure?"}); err != nil {
				return nil, err
			}
			return textResult("done"), nil
		},
		"it has no model": func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := askedOf["sampling"].ask(ctx, req.Session); err != nil {
				return nil, fmt.Errorf("ask the model: %w", err)
			}
			return textResult("done"), nil
		},
		"inner authorization": func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if req.Session.InitializeParams().ClientInfo.Name != "able" {
				return nil, forbidden
			}
			return textResult("done"), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{})
				f.raw("x", readOnly, tool)
				f.connect(legacy)
				for range 10 {
					_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
					assert.Error(t, err)
					assert.NotContains(t, err.Error(), string(resilience.CodeCircuitOpen))
				}

				answerAfter(&f.options, time.Second)
				f.connectClient(mcp.NewClient(&mcp.Implementation{Name: "able", Version: "1"}, &f.options), legacy)
				assert.Equal(t, "done", text(t, f.call("x")))
			})
		})
	}
}

// What can't be sent to a client counts for no tool, whichever side has closed its session.
func TestSessionThatIsClosedCountsForNoTool(t *testing.T) {
	for name, send := range map[string]func(context.Context, *mcp.ServerSession) error{
		"log": func(ctx context.Context, s *mcp.ServerSession) error {
			return s.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: "x"})
		},
		"log without the context": func(_ context.Context, s *mcp.ServerSession) error {
			return s.Log(context.Background(), &mcp.LoggingMessageParams{Level: "error", Data: "x"})
		},
		"progress": func(ctx context.Context, s *mcp.ServerSession) error {
			return s.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: 1})
		},
		"ping": func(ctx context.Context, s *mcp.ServerSession) error { return s.Ping(ctx, nil) },
	} {
		for _, byServer := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, by the server %v", name, byServer), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newProtected(t, resilience.Config{}, gosdk.Failure(gosdk.CountErrors))
					f.connect(legacy)
					require.NoError(t, f.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}))
					left := slices.Collect(f.server.Sessions())[0]
					if byServer {
						require.NoError(t, left.Close())
					} else {
						require.NoError(t, f.session.Close())
						require.NoError(t, left.Wait())
					}
					synctest.Wait()

					runs := 0
					var said error
					f.typed("x", readOnly, func(ctx context.Context) error {
						runs++
						said = send(ctx, left)
						return fmt.Errorf("tell the others: %w", said)
					})
					f.connect(legacy)
					assert.True(t, f.call("x").IsError)
					assert.Error(t, said)
					assert.Equal(t, 1, runs)
					assert.Zero(t, f.guard.Breaker("x").Failures())
				})
			})
		}
	}
}

// Nor do calls that a client makes and gives up, of a tool that ignores that.
func TestCanceledCallsHoldUpNoOtherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{})
		f.raw("x", readOnly, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(30 * time.Second)
			return textResult("done"), nil
		})
		f.connect("")
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { time.Sleep(time.Second); cancel() }()
			go func() { _, _ = f.session.CallTool(ctx, &mcp.CallToolParams{Name: "x"}) }()
		}
		time.Sleep(2 * time.Second)

		f.connect("")
		assert.Equal(t, "done", text(t, f.call("x")))
		time.Sleep(time.Minute)
	})
}
