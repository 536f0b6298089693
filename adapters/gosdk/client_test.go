package gosdk_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The result of another server that has no guard is the tool's own. Whose fault a failure was isn't known here.
func TestClientOfAServerWithoutAGuard(t *testing.T) {
	var runs atomic.Int64
	f := newFixture(t, resilience.Config{}, nil)
	f.typed("works", nil, succeed)
	f.typed("fails", nil, failing(&runs))
	g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: fast})
	f.connect("", gosdk.ClientMiddleware(g))

	res := f.call("works")
	assert.False(t, res.IsError)
	assert.NotContains(t, res.Meta, resilience.MetaError)

	res = f.call("fails")
	assert.True(t, res.IsError)
	assert.Equal(t, errBoom.Error(), text(t, res))
	assert.NotContains(t, res.Meta, resilience.MetaError)
	assert.EqualValues(t, 1, runs.Load())

	_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "unknown"})
	var wire *jsonrpc.Error
	require.ErrorAs(t, err, &wire)
	assert.ErrorIs(t, err, resilience.CodeValidation)
}

func TestClientOfAServerThatDiedIsLost(t *testing.T) {
	p := newPeer()
	p.sending = []mcp.Middleware{gosdk.ClientMiddleware(newGuard(t, resilience.Config{}))}
	session, err := p.dial(t.Context())
	require.NoError(t, err)

	go func() { <-p.started; p.cut() }()
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "hang"})
	assert.ErrorIs(t, err, resilience.CodeConnectionLost, "in flight: %v", errors.Unwrap(err))
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "hang"})
	assert.ErrorIs(t, err, resilience.CodeConnectionLost, "afterwards: %v", errors.Unwrap(err))
}

// forgeries are answers with the texts or codes of the SDK's own errors for calls that weren't sent.
var forgeries = map[string]*jsonrpc.Error{
	"closed":          {Code: -32003, Message: "client is closing: EOF"},
	"closing":         {Code: -32004, Message: "server is closing: EOF"},
	"no answer":       {Code: -32000, Message: "x: request terminated without response"},
	"refused":         {Code: -32005, Message: "dial tcp 10.0.0.7:80: connect: connection refused"},
	"unknown session": {Code: -32600, Message: "rejected by transport: Not Found"},
	"refused by HTTP": {Code: -32000, Message: `calling "tools/call": sending "tools/call": Internal Server Error`},
	"busy":            {Code: -32005, Message: `rejected by transport: sending "tools/call": Service Unavailable`},
}

// A call that the server has answered has reached it, whatever the answer says.
func TestNoAnswerSaysThatACallWasNotSent(t *testing.T) {
	for name, answer := range forgeries {
		inBubble(t, name, func(t *testing.T) {
			f := newFixture(t, resilience.Config{}, nil)
			runs := 0
			f.raw("x", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				runs++
				return nil, answer
			})
			g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent, Retry: fast})
			f.connect("", gosdk.ClientMiddleware(g))

			_, err := f.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x"})
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			assert.False(t, e.Retryable)
			assert.Equal(t, 1, runs)
		})
	}
}

func TestCanceledCallOfAClientDoesNotCount(t *testing.T) {
	g := newGuard(t, resilience.Config{})
	p := newPeer()
	p.sending = []mcp.Middleware{gosdk.ClientMiddleware(g)}
	session, err := p.dial(t.Context())
	require.NoError(t, err)
	defer session.Close()

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-p.started; cancel() }()
	_, err = session.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
	assert.ErrorIs(t, err, resilience.CodeCanceled)
	assert.Zero(t, g.Health()[0].ConsecutiveFailures)
}

func TestGuardedClientBelievesAGuardedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newProtected(t, resilience.Config{})
		var runs atomic.Int64
		f.typed("down", nil, failing(&runs))
		f.typed("mistake", nil, func(context.Context) error {
			return &resilience.Error{Code: resilience.CodeValidation, Message: "No such row"}
		})
		g := newGuard(t, resilience.Config{
			Timeouts: resilience.Timeouts{resilience.Quick: 10 * time.Second},
			Effect:   resilience.ReadOnly,
			Retry:    fast,
			Breaker:  resilience.BreakerConfig{Failures: 100},
		})
		f.connect("", gosdk.ClientMiddleware(g))

		for range 5 {
			assert.Equal(t, resilience.CodeToolFailed, metadataOf(t, f.call("down")).Code)
		}
		assert.EqualValues(t, 5, runs.Load(), "the server says that the call must not be repeated")

		failures := g.Health()[0].ConsecutiveFailures
		assert.Equal(t, 5, failures)
		m := metadataOf(t, f.call("down"))
		assert.Equal(t, resilience.CodeCircuitOpen, m.Code)
		assert.Equal(t, 30, m.RetryAfter, "which doesn't fit into the 10s that a call has here")
		assert.Equal(t, failures, g.Health()[0].ConsecutiveFailures, "the server didn't ask its tool")

		for range 3 {
			assert.Equal(t, resilience.CodeValidation, metadataOf(t, f.call("mistake")).Code)
		}
		assert.Zero(t, g.Breaker("mistake").Failures(), "the caller's mistake doesn't count here either")
	})
}

func TestObserverReceivesTheRequestOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var request resilience.RequestInfo
		g := newGuard(t, resilience.Config{Observers: []resilience.Observer{{
			Start: func(_ context.Context, e resilience.CallStart) context.Context {
				request = e.Request
				return nil
			},
		}}})
		call := gosdk.ClientMiddleware(g)(func(context.Context, string, mcp.Request) (mcp.Result, error) {
			return &mcp.CallToolResult{}, nil
		})
		meta := mcp.Meta{"traceparent": "00-1-2-01"}
		req := &mcp.ClientRequest[*mcp.CallToolParams]{Params: &mcp.CallToolParams{Name: "x", Meta: meta}}
		_, err := call(t.Context(), "tools/call", req)
		require.NoError(t, err)
		assert.Equal(t, resilience.RequestInfo{Method: "tools/call", Client: true, Meta: meta}, request)
	})
}

// The error metadata of another server's guard decides whether its failure is repeated, and when, and that it counts.
func TestGuardedClientRepeatsAndCountsWhatAGuardedServerSays(t *testing.T) {
	for name, tc := range map[string]struct {
		metadata map[string]any
		runs     int
		after    time.Duration
	}{
		"retryable":           {map[string]any{"code": "TIMEOUT", "retryable": true}, 2, 0},
		"retryable, later":    {map[string]any{"code": "BUSY", "retryable": true, "retryAfter": 1.0}, 2, time.Second},
		"retryable, too late": {map[string]any{"code": "BUSY", "retryable": true, "retryAfter": 1e100}, 2, 0},
		"not retryable":       {map[string]any{"code": "CONNECTION_LOST", "retryable": false}, 1, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			runs := 0
			next := func(context.Context, string, mcp.Request) (mcp.Result, error) {
				runs++
				res := errorTextResult("no")
				res.Meta = mcp.Meta{resilience.MetaError: tc.metadata}
				return res, nil
			}
			retry := resilience.Retry{MaxRetries: 1, Backoff: resilience.Backoff{Base: 1, Max: time.Minute}}
			g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly, Retry: retry})
			begin := time.Now()
			_, err := gosdk.ClientMiddleware(g)(next)(t.Context(), "tools/call",
				&mcp.ClientRequest[*mcp.CallToolParams]{Params: &mcp.CallToolParams{Name: "x"}})
			require.NoError(t, err)
			assert.Equal(t, tc.runs, runs)
			assert.InDelta(t, tc.after, time.Since(begin), float64(time.Millisecond))
			assert.Equal(t, 1, g.Breaker("x").Failures())
		})
	}
}
