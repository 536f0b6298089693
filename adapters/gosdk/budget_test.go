//lint:file-ignore SA1019 servers still log
package gosdk_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// A client that doesn't read takes a hundredth of what a tool has before it times out, also if it could have longer: after
// a question to a person, or if it made progress.
func TestClientThatDoesNotReadTakesAHundredthOfTheToolsOwnTime(t *testing.T) {
	for name, tool := range map[string]resilience.Tool{
		"after a question":                     {Timeout: time.Second},
		"with a MaxTimeout":                    {Timeout: time.Second, MaxTimeout: time.Minute},
		"with an AttemptTimeout":               {Timeout: time.Minute, AttemptTimeout: time.Second},
		"with an AttemptTimeout, a MaxTimeout": {Timeout: time.Minute, AttemptTimeout: time.Second, MaxTimeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newWithSlowClients(t, resilience.Config{
					Breaker: resilience.BreakerConfig{Failures: 1}, Tools: map[string]resilience.Tool{"x": tool},
				}, 3*time.Second)
				f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if name == "after a question" {
						assert.NoError(t, contacts["elicitation"](ctx, req))
					}
					begun := time.Now()
					for range 3 {
						assert.NoError(t, contacts["a log message"](ctx, req))
					}
					assert.Equal(t, 10*time.Millisecond, time.Since(begun))
					time.Sleep(980 * time.Millisecond)
					return textResult("done"), nil
				})
				answerAfter(&f.options, time.Minute)
				f.connectContacted()
				assert.Equal(t, "done", text(t, f.call("x")))
				assert.Zero(t, f.guard.Health()[0].ConsecutiveFailures)
				time.Sleep(time.Minute)
			})
		})
	}
}

// Several senders that begin one after the other wait for no longer than one.
func TestSendersThatBeginOneAfterTheOther(t *testing.T) {
	for name, want := range map[string]time.Duration{
		"to the client of a call": 100 * time.Millisecond, "to others": 100 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: time.Minute}}})
				c.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if name == "to others" {
						ctx = context.Background()
					}
					var senders sync.WaitGroup
					begun := time.Now()
					for range 5 {
						senders.Go(func() {
							assert.NoError(t, req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: 1}))
						})
						time.Sleep(want / 4)
					}
					senders.Wait()
					assert.Equal(t, max(want, 5*want/4), time.Since(begun))
					begun = time.Now()
					assert.NoError(t, req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: 1}))
					assert.LessOrEqual(t, time.Since(begun), want/400, "a hundredth of the time since")
					return textResult("done"), nil
				})
				c.joinDeaf("deaf")
				assert.Equal(t, "done", text(t, c.call("x")))
			})
		})
	}
}

// A question to a person waits for the ping before it to be read, if the client reads.
func TestQuestionAfterAPingThatIsReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWithSlowClients(t, resilience.Config{
			Tools: map[string]resilience.Tool{"x": {Timeout: time.Second}},
		}, 900*time.Millisecond)
		f.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			assert.ErrorContains(t, contacts["ping"](ctx, req), "doesn't read")
			assert.NoError(t, contacts["elicitation"](ctx, req))
			return textResult("done"), nil
		})
		f.connectContacted()
		assert.Equal(t, "done", text(t, f.call("x")))
	})
}
