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

// A tool that was abandoned is silent once its call has been answered.
func TestAbandonedToolIsSilentAfterTheAnswer(t *testing.T) {
	for _, withContext := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newProtected(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: time.Second}}})
			var seen []float64
			f.options.ProgressNotificationHandler = func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
				seen = append(seen, req.Params.Progress)
			}
			sent := make(chan error, 1)
			f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				ctx = context.WithoutCancel(ctx)
				if !withContext {
					ctx = context.Background()
				}
				assert.NoError(t, gosdk.NotifyProgress(ctx, req, 1, 0, ""))
				time.Sleep(time.Minute)
				sent <- gosdk.NotifyProgress(ctx, req, 2, 0, "")
				return textResult("late"), nil
			})
			f.connect("")
			res := f.call("x", mcp.Meta{"progressToken": "p"})
			assert.Equal(t, resilience.CodeTimeout, metadataOf(t, res).Code)
			require.NoError(t, <-sent)
			synctest.Wait()
			if withContext {
				assert.Equal(t, []float64{1}, seen)
			}
		})
	}
}

// A tool needs no session to report progress, which then nobody receives.
func TestNotifyProgressWithoutASession(t *testing.T) {
	params := &mcp.CallToolParamsRaw{Name: "x", Meta: mcp.Meta{"progressToken": "p"}}
	assert.NoError(t, gosdk.NotifyProgress(t.Context(), &mcp.CallToolRequest{Params: params}, 1, 0, ""))
}

// What a tool sends for another call is that call's, and what is for no call passes unchanged.
func TestProgressBelongsToTheCallOfItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{
			"reports": {Timeout: time.Second, MaxTimeout: time.Minute},
			"slow":    {Timeout: time.Second, MaxTimeout: time.Minute},
		}}, nil)
		var sent []string
		f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if note, ok := req.GetParams().(*mcp.ProgressNotificationParams); ok {
					sent = append(sent, fmt.Sprint(note.ProgressToken, " ", note.Progress))
				}
				return next(ctx, method, req)
			}
		})
		gosdk.Protect(f.server, f.guard)
		f.raw("slow", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(5 * time.Second)
			return textResult("done"), nil
		})
		f.raw("reports", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for i := range 6 {
				for _, token := range []any{"slow", nil} {
					_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i)})
				}
				time.Sleep(900 * time.Millisecond)
			}
			return textResult("done"), nil
		})
		f.connect("")

		slow := make(chan resilience.Code, 1)
		go func() {
			res, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{
				Name: "slow", Meta: mcp.Meta{"progressToken": "slow"},
			})
			assert.NoError(t, err)
			if !res.IsError {
				slow <- ""
			}
			close(slow)
		}()
		synctest.Wait()
		assert.Equal(t, resilience.CodeTimeout, metadataOf(t, f.call("reports")).Code, "it reports nothing of its own")
		_, done := <-slow
		assert.True(t, done)
		time.Sleep(time.Minute)
		assert.Contains(t, sent, "slow 1")
		assert.Contains(t, sent, "<nil> 1")
	})
}
