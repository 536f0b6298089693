//lint:file-ignore SA1019 servers still log
package gosdk_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
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

// What a server sends apart from progress is none of the guard's business, within a call and without.
func TestOtherNotificationsPassUnharmed(t *testing.T) {
	seen := sameAsBare(t, func(f *fixture, o *observation) {
		f.options.ProgressNotificationHandler = o.progress
		f.options.LoggingMessageHandler = func(_ context.Context, req *mcp.LoggingMessageRequest) {
			o.add("log %v", req.Params.Data)
		}
		f.options.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) { o.add("tools") }
		f.options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			time.Sleep(thinks)
			return &mcp.ElicitResult{Action: "accept"}, nil
		}
		send := func(ctx context.Context, s *mcp.ServerSession, name string) {
			o.add("%v", s.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: name}))
			o.add("%v", s.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: name, Progress: 1}))
			o.add("%v", s.NotifyProgress(ctx, nil) != nil)
		}
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			send(ctx, req.Session, "within")
			return textResult("done"), nil
		})
		f.connect(legacy)
		require.NoError(f, f.session.SetLoggingLevel(f.Context(), &mcp.SetLoggingLevelParams{Level: "info"}))

		f.callWithProgress(f.Context(), o, "x")
		synctest.Wait()
		f.raw("y", nil, returns(textResult("new"), nil))
		time.Sleep(time.Minute)
		for s := range f.server.Sessions() {
			send(f.Context(), s, "without")
			res, err := s.Elicit(f.Context(), &mcp.ElicitParams{Message: "Sure?"})
			o.add("%s, %v", jsonOf(f.T, res), err)
		}
		o.sort()
	})
	assert.Contains(t, seen, "log within")
	assert.Contains(t, seen, "log without")
	assert.Contains(t, seen, "progress without 1")
	assert.Contains(t, seen, "tools")
	assert.Contains(t, seen, `{"action":"accept"}, <nil>`)
}

// A tool that has returned in time may go on with its work.
func TestToolThatHasReturnedMaySendAndAsk(t *testing.T) {
	seen := sameAsBare(t, func(f *fixture, o *observation) {
		f.options.ProgressNotificationHandler = o.progress
		answerAfter(&f.options, 0)
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			returned := context.WithoutCancel(ctx)
			go func() {
				time.Sleep(time.Second)
				o.add("late: %v", gosdk.NotifyProgress(returned, req, 1, 0, ""))
				res, err := req.Session.Elicit(returned, &mcp.ElicitParams{Message: "Sure?"})
				o.add("asked: %v, %v", jsonOf(t, res), err)
			}()
			return textResult("done"), nil
		})
		f.connect(legacy)
		f.callWithProgress(f.Context(), o, "x")
		time.Sleep(time.Minute)
		o.sort()
	})
	assert.Len(t, seen, 4)
	assert.Contains(t, seen, "progress p 1")
}

// A tool learns that its progress could not be sent, and may send it again.
func TestProgressThatIsNotSentIsAnErrorOfTheTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{}, nil)
		fails := true
		f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "notifications/progress" && fails {
					return nil, errBoom
				}
				return next(ctx, method, req)
			}
		})
		gosdk.Protect(f.server, f.guard)
		var o observation
		f.options.ProgressNotificationHandler = func(ctx context.Context, req *mcp.ProgressNotificationClientRequest) {
			o.progress(ctx, req)
			assert.Zero(t, req.Params.Total, "it isn't known")
		}
		f.raw("x", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if fails {
				assert.ErrorIs(t, gosdk.NotifyProgress(ctx, req, 5, -1, ""), errBoom)
				fails = false
				return failedResult("try again"), nil
			}
			return textResult("done"), gosdk.NotifyProgress(ctx, req, 5, -1, "")
		})
		f.connect("")
		assert.Equal(t, "done", text(t, f.call("x", mcp.Meta{"progressToken": "p"})))
		synctest.Wait()
		assert.Equal(t, []string{"progress p 5"}, o.seen)
	})
}

// A mark is a value of a call's context.
type mark [1 << 10]byte

type markKey struct{}

// marking is middleware that marks the context of each call.
func marking(marks *[]weak.Pointer[mark]) mcp.Middleware {
	var mu sync.Mutex
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/call" {
				m := &mark{}
				mu.Lock()
				*marks = append(*marks, weak.Make(m))
				mu.Unlock()
				ctx = context.WithValue(ctx, markKey{}, m)
			}
			return next(ctx, method, req)
		}
	}
}

// A session may last for months: what is known of its calls ends with them.
func TestNothingOfACallOutlivesIt(t *testing.T) {
	for name, meta := range map[string]mcp.Meta{"with progress": {"progressToken": "p"}, "without": nil} {
		for _, protocol := range protocols {
			t.Run(fmt.Sprint(name, ", ", protocol), func(t *testing.T) {
				var marks []weak.Pointer[mark]
				f := newProtected(t, resilience.Config{})
				f.server.AddReceivingMiddleware(marking(&marks))
				f.typed("x", nil, succeed)
				client := gosdk.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil, f.guard)
				client.AddSendingMiddleware(marking(&marks))
				f.connectClient(client, protocol)
				for range 3 {
					f.call("x", meta)
				}

				require.Len(t, marks, 6)
				none := func() bool {
					runtime.GC()
					for _, m := range marks {
						if m.Value() != nil {
							return false
						}
					}
					return true
				}
				require.Eventually(t, none, testTimeout, 10*time.Millisecond)
			})
		}
	}
}
