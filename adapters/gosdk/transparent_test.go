//lint:file-ignore SA1019 servers still ask for sampling and roots
package gosdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
)

// An observation is what the tools, the middleware and the client of a server see.
type observation struct {
	mu   sync.Mutex
	seen []string
}

func (o *observation) add(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, fmt.Sprintf(format, args...))
}

// sort forgets the order, which goroutines don't have.
func (o *observation) sort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.Sort(o.seen)
}

// progress is a handler of progress notifications.
func (o *observation) progress(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	o.add("progress %v %v", req.Params.ProgressToken, req.Params.Progress)
}

// sameAsBare runs a scenario without a guard and with a default one. The same must be observed.
func sameAsBare(t *testing.T, scenario func(f *fixture, o *observation)) []string {
	var both [2]observation
	for i, o := range []*observation{&both[0], &both[1]} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, resilience.Config{}, nil)
			if i == 1 {
				gosdk.Protect(f.server, f.guard)
			}
			scenario(f, o)
			synctest.Wait()
		})
	}
	assert.Equal(t, both[0].seen, both[1].seen)
	return both[0].seen
}

// callWithProgress calls a tool, and adds what the client receives, but for the guidance that a guard adds
// to a tool's own failure.
func (f *fixture) callWithProgress(ctx context.Context, o *observation, tool string) {
	params := &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"n": 1}}
	params.SetProgressToken("p")
	res, err := f.session.CallTool(ctx, params)
	if res != nil && res.Meta[resilience.MetaError] != nil {
		assert.Equal(f.T, metadataOf(f.T, res).Suggestion, guidanceOf(f.T, res), "these tools may change something")
		res.Content = res.Content[:1]
		delete(res.Meta, resilience.MetaError)
		if len(res.Meta) == 0 {
			res.Meta = nil
		}
	}
	o.add("%s, %v", jsonOf(f.T, res), err)
}

func TestProgressIsTheToolsAffair(t *testing.T) {
	type notify = func(progress float64) error
	for name, tool := range map[string]func(o *observation, notify notify){
		"it doesn't increase": func(o *observation, notify notify) {
			for _, progress := range []float64{0, 0, 50, 50, 30, -1, 100} {
				o.add("%v", notify(progress))
			}
		},
		"from ten goroutines": func(_ *observation, notify notify) {
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					for j := range 20 {
						_ = notify(float64(20*i + j))
					}
				})
			}
			all.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen := sameAsBare(t, func(f *fixture, o *observation) {
				f.options.ProgressNotificationHandler = o.progress
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					tool(o, func(progress float64) error {
						return req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
							ProgressToken: req.Params.GetProgressToken(), Progress: progress,
						})
					})
					return textResult("done"), nil
				})
				f.connect("")
				f.callWithProgress(f.Context(), o, "x")
				time.Sleep(time.Minute)
				o.sort()
			})
			assert.Greater(t, len(seen), 3)
		})
	}
}

// askedOf is what a tool may ask the client's user, by a request of its own or as its result.
var askedOf = map[string]struct {
	ask    func(ctx context.Context, s *mcp.ServerSession) error
	params mcp.InputRequest
}{
	"elicitation": {
		func(ctx context.Context, s *mcp.ServerSession) error {
			_, err := s.Elicit(ctx, &mcp.ElicitParams{Message: "Sure?"})
			return err
		},
		&mcp.ElicitParams{Message: "Sure?"},
	},
	"sampling": {
		func(ctx context.Context, s *mcp.ServerSession) error {
			_, err := s.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1})
			return err
		},
		&mcp.CreateMessageParams{MaxTokens: 1},
	},
	"roots": {
		func(ctx context.Context, s *mcp.ServerSession) error {
			_, err := s.ListRoots(ctx, nil)
			return err
		},
		&mcp.ListRootsParams{},
	},
}

// answerAfter lets the user of a client answer each question after d.
func answerAfter(opts *mcp.ClientOptions, d time.Duration) {
	opts.ElicitationHandler = func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		time.Sleep(d)
		return &mcp.ElicitResult{Action: "accept"}, ctx.Err()
	}
	opts.CreateMessageHandler = func(
		ctx context.Context, _ *mcp.CreateMessageRequest,
	) (*mcp.CreateMessageResult, error) {
		time.Sleep(d)
		return &mcp.CreateMessageResult{Content: &mcp.TextContent{Text: "yes"}, Model: "m", Role: "user"}, ctx.Err()
	}
}

// slowRoots is receiving middleware of a client that lists its roots after d.
func slowRoots(d time.Duration) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "roots/list" {
				time.Sleep(d)
			}
			return next(ctx, method, req)
		}
	}
}

// addAsking adds a tool that asks directly, which it may do with older protocols only, and one that asks
// by its result.
func (f *fixture) addAsking(name string) {
	asked := askedOf[name]
	f.raw("asks", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return textResult("answered"), asked.ask(ctx, req.Session)
	})
	f.raw("returns questions", nil, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if len(req.Params.InputResponses) > 0 {
			return textResult("answered"), nil
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": asked.params}}, nil
	})
}

// People take longer than any timeout of a tool's.
const thinks = 10 * time.Minute

func TestServerWaitsForPeople(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		for name := range askedOf {
			t.Run(name, func(t *testing.T) {
				seen := sameAsBare(t, func(f *fixture, o *observation) {
					answerAfter(&f.options, thinks)
					f.receiving = []mcp.Middleware{slowRoots(thinks)}
					f.addAsking(name)
					f.connect(protocol)
					if protocol != latest {
						f.callWithProgress(f.Context(), o, "asks")
					}
					f.callWithProgress(f.Context(), o, "returns questions")
				})
				for _, s := range seen {
					assert.Contains(t, s, `"answered"`)
				}
			})
		}
	})
}

// The guard is the client's. It gives its own user the time that a bare client does.
func TestGuardedClientWaitsForItsUser(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		for name := range askedOf {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, resilience.Config{Effect: resilience.ReadOnly}, nil)
					f.addAsking(name)
					f.raw("hangs", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					})

					opts := &mcp.ClientOptions{}
					answerAfter(opts, thinks)
					client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, opts, f.guard)
					f.connectClient(client, protocol)

					tools := []string{"asks", "returns questions"}
					if protocol == latest {
						tools = tools[1:]
					}
					for _, tool := range tools {
						assert.Equal(t, "answered", text(t, f.call(tool)))
					}

					_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "hangs"})
					assert.ErrorIs(t, err, resilience.CodeTimeout, "a call without a question")
				})
			})
		}
	})
}

// A retry would repeat the question. Roots are no question if they come by the result: the SDK answers by itself.
func TestGuardedClientRepeatsNoQuestion(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		for name, asked := range askedOf {
			for _, byResult := range []bool{true, false} {
				if protocol == latest && (!byResult || name == "roots") {
					continue
				}
				t.Run(fmt.Sprintf("%s, by its result %v", name, byResult), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFixture(t, resilience.Config{Effect: resilience.ReadOnly}, nil)
						questions := 0
						question := &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": asked.params}}
						f.raw("x", nil, func(
							ctx context.Context, req *mcp.CallToolRequest,
						) (*mcp.CallToolResult, error) {
							if len(req.Params.InputResponses) > 0 {
								return errorTextResult("no"), nil
							}
							questions++
							if byResult {
								return question, nil
							}
							assert.NoError(t, asked.ask(ctx, req.Session))
							return errorTextResult("no"), nil
						})

						opts := &mcp.ClientOptions{}
						answerAfter(opts, 0)
						client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, opts, f.guard,
							gosdk.Failure(gosdk.CountAll))
						f.connectClient(client, protocol)
						assert.Equal(t, "no", text(t, f.call("x")))
						assert.Equal(t, 1, questions)
					})
				})
			}
		}
	})
}

func TestFailureKeepsItsKind(t *testing.T) {
	type unlike struct {
		V string `json:"v"`
	}
	seen := sameAsBare(t, func(f *fixture, o *observation) {
		f.typed("typed", nil, func(context.Context) error { return errBoom })
		f.raw("raw", nil, returns(nil, errBoom))
		f.raw("wrapped", nil, returns(nil, fmt.Errorf("list pods: %w", errBoom)))
		f.raw("canceled", nil, returns(nil, context.Canceled))
		f.raw("isError", nil, returns(errorTextResult("no such row"), nil))
		f.raw("busy", nil, returns(&mcp.CallToolResult{InputRequests: mcp.InputRequestMap{}}, nil))
		schema := json.RawMessage(`{"type":"object","properties":{"v":{"type":"integer"}},"required":["v"]}`)
		mcp.AddTool(f.server, &mcp.Tool{Name: "invalid output", OutputSchema: schema}, func(
			context.Context, *mcp.CallToolRequest, any,
		) (*mcp.CallToolResult, unlike, error) {
			return nil, unlike{"text"}, nil
		})
		f.connect(legacy)
		for _, tool := range []string{
			"typed", "raw", "wrapped", "canceled", "isError", "busy", "invalid output", "no such tool", "",
		} {
			f.callWithProgress(f.Context(), o, tool)
		}
	})
	assert.Len(t, seen, 9)
}

// A tool whose caller leaves may finish its work or undo it, and the server waits for that.
func TestToolOfACallerWhoLeftIsWaitedFor(t *testing.T) {
	for name, leave := range map[string]func(f *fixture, cancel func()){
		"the client cancels":       func(_ *fixture, cancel func()) { cancel() },
		"the client disconnects":   func(f *fixture, _ func()) { f.session.Close() },
		"the client's deadline":    func(*fixture, func()) {},
		"the server's session end": func(f *fixture, _ func()) { closeSessions(f.server) },
	} {
		t.Run(name, func(t *testing.T) {
			seen := sameAsBare(t, func(f *fixture, o *observation) {
				started := make(chan struct{})
				f.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						res, err := next(ctx, method, req)
						if method == "tools/call" {
							o.add("the server answers %v, %v", jsonOf(t, res), err)
						}
						return res, err
					}
				})
				f.raw("transfer", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					o.add("debited A")
					close(started)
					select {
					case <-ctx.Done():
						time.Sleep(time.Second)
						o.add("rolled back, %v", errors.Is(ctx.Err(), context.Canceled))
						return textResult("rolled back"), nil
					case <-time.After(20 * time.Second):
						o.add("credited B")
						return textResult("done"), nil
					}
				})
				f.connect("")

				ctx, cancel := context.WithTimeout(f.Context(), 5*time.Second)
				defer cancel()
				go func() { <-started; leave(f, cancel) }()
				_, _ = f.session.CallTool(ctx, &mcp.CallToolParams{Name: "transfer"})
				time.Sleep(time.Minute)
			})
			assert.Len(t, seen, 3)
		})
	}
}

func closeSessions(s *mcp.Server) {
	for session := range s.Sessions() {
		session.Close()
	}
}
