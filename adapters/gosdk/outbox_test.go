//lint:file-ignore SA1019 servers still log
package gosdk_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One client reads nothing of what a tool tells to all. It delays the calls of the others by 100ms in all, and misses
// nothing.
func TestClientThatDoesNotReadHoldsUpNoOther(t *testing.T) {
	for name, tell := range tellings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, resilience.Config{
					Breaker: resilience.BreakerConfig{Failures: 1},
					Tools:   map[string]resilience.Tool{"x": {Timeout: 2 * time.Second, MaxInFlight: 1}},
				})
				n := 0
				c.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					n++
					if err := tell(ctx, c, req.Session, n); err != nil {
						return nil, err
					}
					return textResult("done"), nil
				})
				c.joinDeaf("deaf")
				c.join("able")

				begun := time.Now()
				for range 10 {
					assert.Equal(t, "done", text(t, c.call("x")))
				}
				assert.Equal(t, 100*time.Millisecond, time.Since(begun))
				for _, heard := range c.takeHeard() {
					assert.Contains(t, heard, "able: ")
				}
				c.release()
				heard := c.takeHeard()
				require.Len(t, heard, 10)
				for i, h := range heard {
					assert.Contains(t, h, "deaf: ")
					assert.Contains(t, h, fmt.Sprint(i+1))
				}
				assert.Zero(t, c.guard.Health()[0].ConsecutiveFailures)
			})
		})
	}
}

// Many clients that don't read delay the others as little as one.
func TestManyClientsThatDoNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, resilience.Config{})
		for range 100 {
			c.joinDeaf("deaf")
		}
		c.join("able")

		for n, want := range []time.Duration{100 * time.Millisecond, 0, 0} {
			begun := time.Now()
			require.NoError(t, tellings["a resource"](t.Context(), c, nil, n))
			assert.Equal(t, want, time.Since(begun))
			assert.Equal(t, []string{fmt.Sprint("able: ", n)}, c.takeHeard())
		}
	})
}

// Nor does one that reads each of many messages, but slowly.
func TestClientThatReadsSlowlyHoldsUpNoOther(t *testing.T) {
	for name, tell := range tellings {
		if name == "progress" {
			continue // the next of a value that hasn't increased isn't sent
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow *mcp.ServerSession
				c := newCrowd(t, resilience.Config{
					Breaker: resilience.BreakerConfig{Failures: 1},
					Tools:   map[string]resilience.Tool{"x": {Timeout: 2 * time.Second}},
				}, func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if slow != nil && req.GetSession() == mcp.Session(slow) {
							time.Sleep(90 * time.Millisecond)
						}
						return next(ctx, method, req)
					}
				})
				c.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for n := range 40 {
						assert.NoError(t, tell(ctx, c, req.Session, n))
					}
					return textResult("done"), nil
				})
				slow = c.join("slow")
				c.join("able")

				begun := time.Now()
				for range 20 {
					assert.Equal(t, "done", text(t, c.call("x")))
				}
				assert.LessOrEqual(t, time.Since(begun), 200*time.Millisecond)
				assert.Zero(t, c.guard.Health()[0].ConsecutiveFailures)
				time.Sleep(10 * time.Minute)
				told := map[byte]int{}
				for _, heard := range c.takeHeard() {
					told[heard[0]]++
				}
				assert.Equal(t, 800, told['s'])
			})
		})
	}
}

// A client that reads is told everything at the speed of its reading, also while another doesn't, or it is told as much
// as a full outbox.
func TestClientThatReadsIsToldEverythingAtItsSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "notifications/message" {
					time.Sleep(900 * time.Microsecond)
				}
				return next(ctx, method, req)
			}
		})
		deaf, able := c.joinDeaf("deaf"), c.join("able")
		begun := time.Now()
		for n := range 2500 {
			params := &mcp.LoggingMessageParams{Level: "error", Data: n}
			assert.Equal(t, n < 1000, deaf.Log(t.Context(), params) == nil)
			assert.NoError(t, able.Log(t.Context(), params))
		}
		assert.Less(t, time.Since(begun), 5*time.Second)
		c.release()
		time.Sleep(10 * time.Second)
		assert.Len(t, c.takeHeard(), 3500)
	})
}

// Nor do they take the time from one that reads, which needs a little for each message.
func TestClientThatReadsIsToldEverythingBesideOthersThatDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "notifications/message" {
					time.Sleep(5 * time.Millisecond)
				}
				return next(ctx, method, req)
			}
		})
		for range 100 {
			c.joinDeaf("deaf")
		}
		able := c.join("able")
		require.NoError(t, tellings["a resource"](t.Context(), c, nil, 0))
		c.takeHeard()
		for n := range 300 {
			assert.NoError(t, able.Log(t.Context(), &mcp.LoggingMessageParams{Level: "error", Data: n}))
		}
		time.Sleep(2 * time.Second)
		assert.Len(t, c.takeHeard(), 300)
	})
}

// Over HTTP, each request has a stream of its own: what is sent there doesn't wait behind what isn't read elsewhere.
func TestMessagesOfARequestDoNotWaitBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "notifications/resources/updated" {
					<-release
				}
				return next(ctx, method, req)
			}
		})
		c.server.AddPrompt(&mcp.Prompt{Name: "p"}, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			assert.NoError(t, tellings["a resource"](ctx, c, nil, 1))
			return &mcp.GetPromptResult{}, req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: 2,
			})
		})
		c.join("able")
		_, err := c.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "p", Meta: mcp.Meta{"progressToken": "t"}})
		assert.NoError(t, err)
		assert.Equal(t, []string{"able: 2"}, c.takeHeard())
		close(release)
		assert.Equal(t, []string{"able: 1"}, c.takeHeard())
	})
}

// As many may be sent to a client that reads as senders wait for it.
func TestManySendersToAClientThatReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writing := make(chan struct{}, 1)
		c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "notifications/message" {
					writing <- struct{}{}
					defer func() { <-writing }()
					time.Sleep(300 * time.Microsecond)
				}
				return next(ctx, method, req)
			}
		})
		able := c.join("able")
		var senders sync.WaitGroup
		for n := range 150 {
			senders.Go(func() {
				assert.NoError(t, able.Log(context.Background(), &mcp.LoggingMessageParams{Level: "error", Data: n}))
			})
		}
		senders.Wait()
		assert.Len(t, c.takeHeard(), 150)
	})
}

// What isn't read is bounded, and so are the goroutines that send it. A client that reads again is told all that comes.
func TestWhatAClientDoesNotReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, resilience.Config{})
		deaf := c.joinDeaf("deaf")
		log := func(n int) error {
			return deaf.Log(t.Context(), &mcp.LoggingMessageParams{Level: "error", Data: n})
		}
		require.NoError(t, log(0))
		before := runtime.NumGoroutine()
		for n := range 1000 {
			assert.Equal(t, n == 999, log(n+1) != nil)
		}
		err := log(2000)
		assert.ErrorContains(t, err, "doesn't read")
		assert.Equal(t, resilience.ClassNeutral, resilience.Classify(err))
		assert.LessOrEqual(t, runtime.NumGoroutine(), before)

		c.release()
		heard := c.takeHeard()
		require.Len(t, heard, 1000)
		assert.Equal(t, "deaf: 999", heard[999])
		require.NoError(t, log(5))
		assert.Equal(t, []string{"deaf: 5"}, c.takeHeard())
	})
}

// So is what waits for a client that reads, but more slowly than it is told.
func TestWhatASlowClientHasNotReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders = 10
		var sent, read atomic.Int64
		c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "notifications/message" {
					time.Sleep(150 * time.Millisecond)
					read.Add(1)
				}
				return next(ctx, method, req)
			}
		})
		slow := c.join("slow")

		var all sync.WaitGroup
		end := time.Now().Add(time.Minute)
		for range senders {
			all.Go(func() {
				for time.Now().Before(end) {
					err := slow.Log(context.Background(), &mcp.LoggingMessageParams{Level: "error", Data: "x"})
					if err != nil {
						assert.ErrorContains(t, err, "doesn't read")
						time.Sleep(10 * time.Millisecond)
						continue
					}
					assert.LessOrEqual(t, sent.Add(1)-read.Load(), int64(1000+senders))
				}
			})
		}
		all.Wait()
		assert.Greater(t, read.Load(), int64(300))
		time.Sleep(time.Hour)
		assert.Equal(t, sent.Load(), read.Load(), "nothing is lost")
	})
}

// A slow client is waited for again once it has read something.
func TestClientThatReadsAgainIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes atomic.Int64
		takes.Store(int64(time.Second))
		c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "notifications/message" {
					time.Sleep(time.Duration(takes.Load()))
				}
				return next(ctx, method, req)
			}
		})
		slow := c.join("slow")
		for _, want := range []time.Duration{100 * time.Millisecond, 0, 0} {
			begun := time.Now()
			require.NoError(t, slow.Log(t.Context(), &mcp.LoggingMessageParams{Level: "error", Data: 1}))
			assert.Equal(t, want, time.Since(begun))
		}
		time.Sleep(time.Minute)
		takes.Store(int64(50 * time.Millisecond))
		begun := time.Now()
		require.NoError(t, slow.Log(t.Context(), &mcp.LoggingMessageParams{Level: "error", Data: 2}))
		assert.Equal(t, 50*time.Millisecond, time.Since(begun))
		assert.Len(t, c.takeHeard(), 4)
	})
}

// What a tool tells other clients with the context of its call takes no more of its time than what it tells its own.
func TestAttemptSpendsItsTimeOnOtherClientsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Timeout: 500 * time.Millisecond}}})
		deaf := []*mcp.ServerSession{c.joinDeaf("a"), c.joinDeaf("b"), c.joinDeaf("c")}
		var took []time.Duration
		c.raw("x", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for _, s := range deaf {
				begun := time.Now()
				assert.NoError(t, s.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: 1}))
				took = append(took, time.Since(begun))
			}
			return textResult("done"), nil
		})
		c.join("able")
		assert.Equal(t, "done", text(t, c.call("x")))
		assert.Equal(t, []time.Duration{5 * time.Millisecond, 0, 0}, took)
	})
}

// A client that reads each message, but slowly, takes no more than a part of a tool's time, and is told nearly all. One
// that reads at once is told everything, also when an earlier message has taken all the time that there is for it.
func TestMessagesThatAreReadSlowlyTakeBoundedTime(t *testing.T) {
	for name, tc := range map[string]struct {
		first, each time.Duration
		took        time.Duration
		refused     int
	}{
		"at once":             {0, 0, 0, 0},
		"at once after delay": {199 * time.Millisecond, 100 * time.Microsecond, 299 * time.Millisecond, 0},
		"slowly":              {0, 2 * time.Millisecond, 202 * time.Millisecond, 899},
		"very slowly":         {0, 200 * time.Millisecond, 200 * time.Millisecond, 999},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				takes := tc.first
				c := newCrowd(t, resilience.Config{
					Tools: map[string]resilience.Tool{"x": {Timeout: 2 * time.Second}},
				}, func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if method == "notifications/message" {
							time.Sleep(takes)
							takes = tc.each
						}
						return next(ctx, method, req)
					}
				})
				c.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					begun, refused := time.Now(), 0
					for range 2000 {
						if req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: 1}) != nil {
							refused++
						}
					}
					assert.InDelta(t, tc.took, time.Since(begun), float64(5*time.Millisecond))
					assert.InDelta(t, tc.refused, refused, 5)
					return textResult(fmt.Sprint(refused)), nil
				})
				c.join("slow")
				refused, err := strconv.Atoi(text(t, c.call("x")))
				require.NoError(t, err)
				assert.Len(t, c.takeHeard(), 2000-refused)
			})
		})
	}
}

// A tool goes on while its message isn't read: it cancels its context, and changes what it has sent.
func TestMessageIsSentAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, resilience.Config{})
		deaf, second := c.joinDeaf("deaf"), c.joinDeaf("deaf")
		ctx, cancel := context.WithCancel(t.Context())
		inner := map[string]int{"n": 1}
		log := &mcp.LoggingMessageParams{Level: "error", Data: map[string]any{"inner": &inner}}
		require.NoError(t, deaf.Log(ctx, log))
		require.NoError(t, deaf.Log(ctx, log))
		note := &mcp.ResourceUpdatedNotificationParams{URI: "notes://all", Meta: mcp.Meta{"n": 1}}
		require.NoError(t, c.server.ResourceUpdated(ctx, note))

		cancel()
		go func() {
			for n := range 1000 {
				inner["n"], log.Level, note.Meta["n"] = n+2, "debug", n+2
			}
		}()
		c.release()
		heard := c.takeHeard()
		slices.Sort(heard)
		want := []string{"deaf: 1", "deaf: 1", `deaf: {"inner":{"n":1}}`, `deaf: {"inner":{"n":1}}`}
		assert.Equal(t, want, heard)
		assert.ErrorIs(t, second.Log(ctx, &mcp.LoggingMessageParams{Level: "error"}), context.Canceled, "as ever")
	})
}

// Other middleware may fail a message. Its sender hears of that, unless it has gone on, and the next message is sent.
func TestMiddlewareThatFailsANotification(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errBoom }, "panic": func() error { panic("boom") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %v", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
						return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
							log, ok := req.GetParams().(*mcp.LoggingMessageParams)
							if ok && log.Logger == "bad" {
								if late {
									time.Sleep(time.Second)
								}
								return nil, fail()
							}
							return next(ctx, method, req)
						}
					})
					s := c.join("able")
					log := func(logger string) (ended string) {
						done := make(chan string)
						go func() {
							defer func() {
								if v := recover(); v != nil {
									ended = "panic"
								}
								done <- ended
							}()
							ended = "Goexit"
							err := s.Log(t.Context(), &mcp.LoggingMessageParams{Level: "error", Logger: logger, Data: 1})
							ended = ""
							if err != nil {
								assert.ErrorIs(t, err, errBoom)
								ended = "error"
							}
						}()
						return <-done
					}
					want := name
					if late {
						want = ""
					}
					assert.Equal(t, want, log("bad"))
					assert.Empty(t, log("good"))
					time.Sleep(time.Minute)
					assert.Equal(t, []string{"able: 1"}, c.takeHeard())
				})
			})
		}
	}
}

// A tool's notifications are written before it goes on.
func TestNotificationIsWrittenBeforeTheToolGoesOn(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(tellings)) {
		synctest.Test(t, func(t *testing.T) {
			written := 0
			c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					defer func() { written++ }()
					return next(ctx, method, req)
				}
			})
			c.join("able")
			for n := range 100 {
				require.NoError(t, tellings[name](t.Context(), c, nil, n))
				assert.Equal(t, n+1, written)
			}
			assert.Len(t, c.takeHeard(), 100)
		})
	}
}

// Nothing is left of a session that ends before its client has read.
func TestSessionThatEndsLeavesNothing(t *testing.T) {
	leavesNothing(t)
	c := newCrowd(t, resilience.Config{})
	_, client, err := pipeTo(c.server)
	require.NoError(t, err)
	answers := bufio.NewReader(client)
	for _, say := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
			`"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"notes://all"}}`,
	} {
		_, err := fmt.Fprintln(client, say)
		require.NoError(t, err)
		_, err = answers.ReadString('\n')
		require.NoError(t, err)
	}
	for n := range 10 {
		require.NoError(t, tellings["a resource"](t.Context(), c, nil, n))
	}
	require.NoError(t, client.Close())
}

// Progress of a call comes before its answer also if the tool of another call of the client sends it, as one that does
// a job for both.
func TestProgressThatAnotherCallSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		c := newCrowd(t, resilience.Config{}, func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if slow.Load() && strings.HasPrefix(method, "notifications/") {
					time.Sleep(900 * time.Millisecond)
				}
				return next(ctx, method, req)
			}
		})
		begins, done := make(chan struct{}), make(chan struct{})
		c.raw("job", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-begins
			for i := range 5 {
				assert.NoError(t, req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: "a", Progress: float64(i + 1),
				}))
			}
			close(done)
			return textResult("job"), nil
		})
		c.raw("wait", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			close(begins)
			<-done
			return textResult("a"), nil
		})
		c.join("slow")
		slow.Store(true)
		go c.call("job")
		answer := text(t, c.call("wait", mcp.Meta{"progressToken": "a"}))
		synctest.Wait() // what was read at the same moment
		c.hear("answered %s", answer)
		time.Sleep(time.Hour)
		heard := c.takeHeard()
		assert.Len(t, heard, 6)
		assert.Equal(t, "answered a", heard[len(heard)-1])
	})
}

// Any answer of a tool's waits until its client has read what came before.
func TestAnswersThatWaitForTheClient(t *testing.T) {
	for name, answer := range map[string]func() (*mcp.CallToolResult, error){
		"a result": func() (*mcp.CallToolResult, error) { return textResult("done"), nil },
		"a failed one": func() (*mcp.CallToolResult, error) {
			res := textResult("no such city")
			res.IsError = true
			return res, nil
		},
		"a protocol error": func() (*mcp.CallToolResult, error) {
			return nil, resilience.MarkBackend(&jsonrpc.Error{Code: -32050, Message: "down"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Bool
				cfg := resilience.Config{Retry: resilience.Retry{MaxRetries: -1}}
				c := newCrowd(t, cfg, func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if slow.Load() && strings.HasPrefix(method, "notifications/") {
							time.Sleep(900 * time.Millisecond)
						}
						return next(ctx, method, req)
					}
				})
				c.raw("x", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					for n := range 5 {
						assert.NoError(t, req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: n}))
					}
					return answer()
				})
				c.join("slow")
				slow.Store(true)
				_, _ = c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
				assert.Len(t, c.takeHeard(), 5)
			})
		})
	}
}

// Progress of a call of a client that doesn't read holds up the tool of another client's call no longer than any other
// notification to that client.
func TestProgressThatAnotherClientsCallSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, resilience.Config{})
		begins, done := make(chan struct{}), make(chan struct{})
		c.raw("wait", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			close(begins)
			<-done
			return textResult("a"), nil
		})
		deaf := c.joinDeaf("deaf")
		c.raw("job", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-begins
			begun := time.Now()
			assert.NoError(t, deaf.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "a", Progress: 1}))
			assert.Equal(t, 100*time.Millisecond, time.Since(begun))
			close(done)
			return textResult("job"), nil
		})
		first := c.session
		go func() {
			params := &mcp.CallToolParams{Name: "wait", Meta: mcp.Meta{"progressToken": "a"}}
			_, _ = first.CallTool(t.Context(), params)
		}()
		c.join("other")
		assert.Equal(t, "job", text(t, c.call("job")))
		c.release()
	})
}
