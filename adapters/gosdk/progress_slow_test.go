package gosdk_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
)

// What waits for a client that reads slowly counts as sent when the next attempt begins, as the client will read it.
func TestProgressThatWaitsForTheClientIsNotRepeated(t *testing.T) {
	type sayFunc = func(progress float64)
	firsts := map[string]func(context.Context, sayFunc) error{
		"what JSON doesn't have": func(_ context.Context, say sayFunc) error {
			go say(5)
			go say(math.NaN())
			go say(math.Inf(1))
			time.Sleep(time.Millisecond)
			return errBoom
		},
		"the attempt's timeout": func(ctx context.Context, say sayFunc) error {
			time.Sleep(950 * time.Millisecond)
			say(5)
			<-ctx.Done()
			return ctx.Err()
		},
		"a failure": func(_ context.Context, say sayFunc) error {
			go say(5)
			time.Sleep(time.Millisecond)
			return errBoom
		},
		"a failure, and is said again": func(_ context.Context, say sayFunc) error {
			go say(5)
			time.AfterFunc(10*time.Millisecond, func() { say(5) })
			time.Sleep(time.Millisecond)
			return errBoom
		},
	}
	for name, first := range firsts {
		for _, takes := range []time.Duration{0, 90 * time.Millisecond} {
			inBubble(t, fmt.Sprint(name, ", ", takes), func(t *testing.T) {
				f := newFixture(t, resilience.Config{
					Tools:          map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly, Timeout: 10 * time.Second}},
					AttemptTimeout: time.Second,
					Retry:          resilience.Retry{Backoff: steady(20 * time.Millisecond)},
				}, nil)
				f.server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if method == "notifications/progress" {
							time.Sleep(takes)
						}
						return next(ctx, method, req)
					}
				})
				gosdk.Protect(f.server, f.guard)
				attempts := 0
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					say := func(progress float64) { _ = gosdk.NotifyProgress(ctx, req, progress, 0, "") }
					if attempts++; attempts == 1 {
						return nil, first(ctx, say)
					}
					for _, progress := range []float64{1, 5, 6} {
						say(progress)
					}
					return textResult("done"), nil
				})

				var seen []float64
				f.options.ProgressNotificationHandler = func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					seen = append(seen, r.Params.Progress)
				}
				f.connect(legacy)
				f.call("x", mcp.Meta{"progressToken": "p"})
				synctest.Wait()
				assert.Equal(t, []float64{5, 6}, seen)
				assert.Equal(t, 2, attempts)
			})
		}
	}
}
