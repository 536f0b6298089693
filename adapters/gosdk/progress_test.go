package gosdk_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The progress of a slowTool is the only sign that it doesn't hang. It sends progress 1 to 5, and its
// first attempt fails after 3.
func slowTool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for progress := 1.0; progress <= 5; progress++ {
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.New("cut off")
		}
		note := &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: progress}
		if err := req.Session.NotifyProgress(ctx, note); err != nil {
			return nil, err
		}
		if progress == 3 && resilience.Attempt(ctx) == 1 {
			return nil, errBoom
		}
	}
	return textResult("done"), nil
}

func TestProgressRestartsTheTimeoutAndNeverDecreases(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		synctest.Test(t, func(t *testing.T) {
			f := newProtected(t, resilience.Config{Tools: map[string]resilience.Tool{
				"slow": {Timeout: time.Second, MaxTimeout: time.Minute, Effect: resilience.ReadOnly},
			}})
			var o observation
			f.options.ProgressNotificationHandler = o.progress
			f.raw("slow", nil, slowTool)
			f.connect(protocol)
			assert.Equal(t, "done", text(t, f.call("slow", mcp.Meta{"progressToken": 7})))
			synctest.Wait()
			want := []string{"progress 7 1", "progress 7 2", "progress 7 3", "progress 7 4", "progress 7 5"}
			assert.Equal(t, want, o.seen)
		})
	})
}

// Behind Middleware alone nothing sees what a tool sends.
func TestNotifyProgressRestartsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{
			"x": {Timeout: time.Second, MaxTimeout: time.Minute},
		}}, nil)
		f.server.AddReceivingMiddleware(gosdk.Middleware(f.guard))
		var seen []mcp.ProgressNotificationParams
		f.options.ProgressNotificationHandler = func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			seen = append(seen, *req.Params)
		}
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for i := range 3 {
				time.Sleep(900 * time.Millisecond)
				if err := gosdk.NotifyProgress(ctx, req, float64(i), 3, "page"); err != nil {
					return nil, err
				}
			}
			return textResult("done"), gosdk.NotifyProgress(ctx, req, 4, -1, "")
		})
		f.connect(legacy)

		assert.Equal(t, "done", text(t, f.call("x")), "the client doesn't ask for progress")
		assert.Empty(t, seen)
		assert.Equal(t, "done", text(t, f.call("x", mcp.Meta{"progressToken": "p"})))
		synctest.Wait()
		require.Len(t, seen, 4)
		assert.Zero(t, seen[3].Total, "it isn't known")
		want := mcp.ProgressNotificationParams{ProgressToken: "p", Progress: 2, Total: 3, Message: "page"}
		want.Meta = seen[2].Meta
		assert.Equal(t, want, seen[2])
	})
}

// A client that doesn't read holds the tool up, as without a guard, but not beyond the tool's timeout.
func TestToolThatWaitsForItsClientHasItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{
			"x": {Timeout: time.Second, MaxTimeout: time.Minute},
		}}, nil)
		reads := make(chan struct{})
		f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "notifications/progress" {
					<-reads // whatever becomes of the context, as in the SDK
				}
				return next(ctx, method, req)
			}
		})
		gosdk.Protect(f.server, f.guard)
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(500 * time.Millisecond)
			return textResult("done"), gosdk.NotifyProgress(ctx, req, 1, 0, "")
		})
		f.connect("")

		start := time.Now()
		res := f.call("x", mcp.Meta{"progressToken": "p"})
		assert.Equal(t, resilience.CodeTimeout, metadataOf(t, res).Code)
		assert.Equal(t, 1500*time.Millisecond, time.Since(start), "the notification has restarted it")
		close(reads)
		assert.Equal(t, "done", text(t, f.call("x", mcp.Meta{"progressToken": "p"})))
	})
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

// With a new protocol the client handles the elicitation, with an old one the SDK does.
func TestElicitationPausesTheTimeoutAndIsNotRepeated(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		synctest.Test(t, func(t *testing.T) {
			unfinished := 0
			ask := resilience.Tool{Timeout: 500 * time.Millisecond, Effect: resilience.ReadOnly}
			f := newProtected(t, resilience.Config{
				Tools: map[string]resilience.Tool{"ask": ask},
				Observers: []resilience.Observer{{End: func(_ context.Context, e resilience.CallEnd) {
					if e.Unfinished {
						unfinished++
					}
				}}},
			})
			elicitations := 0
			f.options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				elicitations++
				time.Sleep(700 * time.Millisecond) // the user takes longer than the tool may
				return &mcp.ElicitResult{Action: "accept"}, nil
			}
			f.raw("ask", nil, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if len(req.Params.InputResponses) > 0 {
					return failedResult("no"), nil // a retry would elicit again
				}
				question := mcp.InputRequestMap{"q": askedOf["elicitation"].params}
				return &mcp.CallToolResult{InputRequests: question}, nil
			})
			f.connect(protocol)

			res := f.call("ask")
			assert.True(t, res.IsError)
			assert.NotEqual(t, resilience.CodeTimeout, metadataOf(t, res).Code)
			assert.Equal(t, 1, elicitations)
			failures := f.guard.Health()[0].ConsecutiveFailures
			assert.Equal(t, 1, failures, "the failure counts, the elicitation doesn't")
			require.NoError(t, f.guard.Flush(t.Context()))
			assert.Equal(t, protocol == latest, unfinished == 1)
		})
	})
}

// A retry would repeat the question, however the attempt ends that has elicited something.
func TestToolThatHasElicitedIsNotCalledAgain(t *testing.T) {
	for name, then := range map[string]func(context.Context) error{ // after the elicitation
		"it fails":                   func(context.Context) error { return errBoom },
		"it fails and had no effect": func(context.Context) error { return resilience.MarkNoEffect(errBoom) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newProtected(t, resilience.Config{Retry: fast})
				elicitations := 0
				f.options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					elicitations++
					time.Sleep(time.Hour)
					return &mcp.ElicitResult{Action: "accept"}, nil
				}
				handler := func(
					ctx context.Context, req *mcp.CallToolRequest, _ any,
				) (*mcp.CallToolResult, any, error) {
					_, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Sure?"})
					if err != nil {
						return nil, nil, err
					}
					return nil, nil, then(ctx)
				}
				mcp.AddTool(f.server, &mcp.Tool{Name: "ask", Annotations: readOnly}, handler)
				f.connect(legacy)

				res := f.call("ask")
				assert.Equal(t, 1, elicitations)
				assert.NotContains(t, jsonOf(t, res), `"retryable":true`, "an agent would repeat the question, too")
				time.Sleep(time.Hour)
			})
		})
	}
}
