//lint:file-ignore SA1019 servers still log, and ask for sampling and roots
package gosdk_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
func (s *shop) find(method string) mcp.ToolHandlerFor[order, any] {
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
		after    int    // in seconds
		guidance string // none if it is empty
		requests int32
	}{
		"500, read": {
			read, page(500), "the shop says 500", resilience.CodeRetryExhausted, 0,
			"4 attempts failed. Try again later.", 4,
		},
		"500, write": {
			write, page(500), "the shop says 500", resilience.CodeToolFailed, 0,
			"It may have taken effect: check before you call it again.", 1,
		},
		"429": {
			read, page(429, "Retry-After", "7"), "the shop says 429", resilience.CodeRateLimited, 7,
			"Call again in 7 seconds; use others meanwhile.", 1,
		},
		"429, write": {
			write, page(429, "Retry-After", "7"), "the shop says 429", resilience.CodeRateLimited, 7,
			"Call again in 7 seconds; use others meanwhile.", 1,
		},
		"503": {
			read, page(503, "Retry-After", "20"), "the shop says 503", resilience.CodeToolFailed, 20,
			"Do not call this tool for 20 seconds; use others.", 1,
		},
		"rate limit": {
			read, page(403, "Retry-After", "60"), "the shop says 403", resilience.CodeRateLimited, 60,
			"Call again in 60 seconds; use others meanwhile.", 1,
		},
		"refused": {
			write, func(*http.Request) (*http.Response, error) { return nil, refused },
			"connection refused", resilience.CodeRetryExhausted, 0, "4 attempts failed. Try again later.", 4,
		},
		"it hangs, under a client with a timeout": {
			read, func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			},
			"deadline exceeded", resilience.CodeTimeout, 0, "", 1,
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
				assert.Equal(t, tc.guidance, guidanceOf(t, res))
				m := metadataOf(t, res)
				assert.Equal(t, tc.code, m.Code)
				assert.Equal(t, tc.after, m.RetryAfter)
				assert.Equal(t, tc.requests, s.requests.Load())
				assert.LessOrEqual(t, time.Since(start), s.client.Timeout)
				counts := tc.code != resilience.CodeRateLimited
				for _, h := range f.guard.Health() {
					assert.Equal(t, counts && h.Tool == tc.tool, h.ConsecutiveFailures == 1, h.Tool)
				}
			})
		})
	}
}

// A client that can't answer a question holds up no other.
func TestWhatOneClientCannotDoHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{})
		f.addAsking("elicitation")
		f.connect(legacy)
		for range 10 {
			_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "asks"})
			assert.Error(t, err)
			assert.NotContains(t, err.Error(), string(resilience.CodeCircuitOpen))
		}

		answerAfter(&f.options, time.Second)
		f.connect(legacy)
		assert.Equal(t, "answered", text(t, f.call("asks")))
	})
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

// contacts is how a tool contacts its client.
var contacts = map[string]func(context.Context, *mcp.CallToolRequest) error{
	"elicitation": asks("elicitation"), "sampling": asks("sampling"), "roots": asks("roots"),

	"ping": func(ctx context.Context, req *mcp.CallToolRequest) error { return req.Session.Ping(ctx, nil) },
	"progress": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return gosdk.NotifyProgress(ctx, req, 1, 0, "")
	},
	"a log message": func(ctx context.Context, req *mcp.CallToolRequest) error {
		return req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: "so far"})
	},
}

func asks(name string) func(context.Context, *mcp.CallToolRequest) error {
	return func(ctx context.Context, req *mcp.CallToolRequest) error { return askedOf[name].ask(ctx, req.Session) }
}

// isContact reports whether a server's message is one of contacts.
func isContact(method string) bool {
	switch method {
	case "elicitation/create", "sampling/createMessage", "roots/list", "ping",
		"notifications/progress", "notifications/message":
		return true
	}
	return false
}

// connectContacted connects a client that can be contacted in each way.
func (f *fixture) connectContacted() {
	f.Helper()
	answerAfter(&f.options, 0)
	f.connect(legacy)
	require.NoError(f, f.session.SetLoggingLevel(f.Context(), &mcp.SetLoggingLevelParams{Level: "info"}))
}

// The backend has no part in it, even if the error looks as if it had.
func TestFailureToReachTheClientIsNotTheBackends(t *testing.T) {
	for name, contact := range contacts {
		for _, failure := range []error{syscall.ECONNRESET, context.DeadlineExceeded} {
			t.Run(fmt.Sprintf("%s, %v", name, failure), func(t *testing.T) {
				f := newFixture(t, resilience.Config{}, nil)
				f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if isContact(method) {
							return nil, failure
						}
						return next(ctx, method, req)
					}
				})
				gosdk.Protect(f.server, f.guard)
				runs := 0
				tool := func(ctx context.Context, req *mcp.CallToolRequest) error {
					runs++
					err := contact(ctx, req)
					assert.ErrorIs(t, err, failure)
					assert.EqualError(t, err, failure.Error())
					return fmt.Errorf("contact the client: %w", err)
				}
				f.raw("raw", readOnly, func(
					ctx context.Context, req *mcp.CallToolRequest,
				) (*mcp.CallToolResult, error) {
					return nil, tool(ctx, req)
				})
				mcp.AddTool(f.server, &mcp.Tool{Name: "typed", Annotations: readOnly}, func(
					ctx context.Context, req *mcp.CallToolRequest, _ any,
				) (*mcp.CallToolResult, any, error) {
					return nil, nil, tool(ctx, req)
				})
				f.connectContacted()

				params := &mcp.CallToolParams{Name: "raw", Meta: mcp.Meta{"progressToken": "p"}}
				_, err := f.session.CallTool(t.Context(), params)
				assert.ErrorContains(t, err, "contact the client: "+failure.Error())
				params.Name = "typed"
				res, err := f.session.CallTool(t.Context(), params)
				require.NoError(t, err)
				assert.Equal(t, "contact the client: "+failure.Error(), text(t, res))

				assert.Equal(t, 2, runs, "nothing is repeated")
				for _, h := range f.guard.Health() {
					assert.Zero(t, h.ConsecutiveFailures)
				}
			})
		}
	}
}

// A tool may give its user less time than a pause would.
func TestUserWhoDoesNotAnswerInTimeIsNoFailureOfTheBackend(t *testing.T) {
	for name := range askedOf {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{})
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					asking, cancel := context.WithTimeout(ctx, 30*time.Second)
					defer cancel()
					err := contacts[name](asking, req)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					return nil, err
				})
				answerAfter(&f.options, thinks)
				f.receiving = []mcp.Middleware{slowRoots(thinks)}
				f.connect(legacy)

				_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
				assert.ErrorContains(t, err, context.DeadlineExceeded.Error())
				assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
			})
		})
	}
}
