package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wordsOfTheSDK are what an agent may have a server or a tool repeat, or a server relay of one behind it.
var wordsOfTheSDK = []string{
	`calling "tools/call": standalone SSE stream: gone`,
	`calling "tools/call": sending "tools/call": Service Unavailable`,
	`calling "tools/call": unexpected EOF`,
	`calling "tools/call": empty batch`,
	`connection closed: calling "tools/call": client is closing: EOF`,
}

// takeOut returns the error of the server, without the SDK's words.
func takeOut(t *testing.T, err error) error {
	var answer *jsonrpc.Error
	require.ErrorAs(t, err, &answer)
	return answer
}

// What others write in the SDK's words ends no session, and counts for nothing.
func TestWordsOfTheSDKInTheMouthOfOthers(t *testing.T) {
	taking := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if method == "tools/call" {
				err = takeOut(t, err)
			}
			return res, err
		}
	}
	for name, wrap := range map[string]func(error) error{
		"by the SDK":  func(err error) error { return err },
		"taken out":   func(err error) error { return takeOut(t, err) },
		"wrapped":     func(err error) error { return fmt.Errorf("reading: %w", takeOut(t, err)) },
		"words after": func(err error) error { return fmt.Errorf("%w (read)", takeOut(t, err)) },
		"joined":      func(err error) error { return errors.Join(takeOut(t, err), errors.New("not read")) },
		"a tool's own": func(err error) error {
			return fmt.Errorf("no such report: %s", takeOut(t, err).Error())
		},
	} {
		for _, words := range wordsOfTheSDK {
			for _, before := range []string{"", "no such file: "} {
				for _, who := range []string{"own", "other", "middleware"} {
					inBubble(t, fmt.Sprint(name, ", ", before, words, ", ", who), func(t *testing.T) {
						f := &scripted{answer: func(_, method, _ string) fakeAnswer {
							if method == "ping" {
								return fakeAnswer{after: time.Millisecond}
							}
							return fakeAnswer{status: 200, code: -32602, words: before + words}
						}}
						var sending []mcp.Middleware
						if who == "middleware" {
							sending = append(sending, taking)
						}
						a, _ := f.session(t, sending...)
						b, _ := f.session(t)
						defer a.Close()
						defer b.Close()
						first := up(t, a)
						up(t, b)

						g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
						var said error
						r := resilience.Run(t.Context(), g, "read", func(ctx context.Context) (int, error) {
							n, err := gosdk.Use(ctx, a, func(ctx context.Context, cs *mcp.ClientSession) (int, error) {
								_, said = cs.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
								if who == "other" {
									_, said = b.CallTool(ctx, &mcp.CallToolParams{Name: "read"})
								}
								said = wrap(said)
								return 0, said
							})
							if name != "by the SDK" || who == "middleware" {
								assert.Same(t, said, err)
							}
							return n, err
						}, behindAdapter)
						require.Error(t, r.Err)
						assert.Equal(t, 1, r.Attempts)
						assert.Zero(t, g.Breaker("read").Failures())
						assert.Same(t, first, up(t, a))

						client := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})
						cs, err := f.connect(t.Context(), true, gosdk.ClientMiddleware(client), putting(func(err, _ error) error { return wrap(err) }))
						require.NoError(t, err)
						defer cs.Close()
						_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "read"})
						require.Error(t, err)
						assert.Zero(t, client.Breaker("read").Failures())
					})
				}
			}
		}
	}
}
