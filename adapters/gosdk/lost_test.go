package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a call's error means for the call, and for its session.
func TestErrorOfACallTellsWhetherItsSessionIsLost(t *testing.T) {
	idle := errors.New("http: server closed idle connection")
	for name, tc := range map[string]struct {
		err        error
		lost, ends bool // the call's connection, and the session
	}{
		"a dial":               {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true, true},
		"a read":               {&net.OpError{Op: "read", Err: errors.New("connection reset")}, true, false},
		"the session":          {mcp.ErrSessionMissing, true, true},
		"the end":              {io.EOF, true, true},
		"an idle connection":   {&url.Error{Op: "Post", Err: fmt.Errorf("send: %w", idle)}, true, false},
		"another of HTTP":      {&url.Error{Op: "Post", Err: errors.New("malformed response")}, false, false},
		"an empty one of HTTP": {&url.Error{Op: "Post"}, false, false},
		"no reply":             {errors.New("x: request terminated without response"), true, false},
		"another":              {errors.New("no reason"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newGatedPeer()
				s := newSession(t, p.dial, sessionConfig{})
				_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
					return 0, fmt.Errorf(`calling "tools/call": %w`, tc.err)
				})
				assert.Equal(t, tc.lost, errors.Is(err, resilience.CodeConnectionLost), "%v", err)
				assert.ErrorIs(t, err, tc.err)
				assert.Equal(t, tc.ends, s.State() == resilience.ConnectionDown)
				require.NoError(t, s.Close())
			})
		})
	}
}

// A call may fail for no clear reason a moment before its session ends.
func TestErrorBeforeTheEndOfASessionIsItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newGatedPeer()
		s := newSession(t, p.dial, sessionConfig{Backoff: steady(time.Hour)})
		_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
			time.AfterFunc(time.Second/2, p.cut)
			return 0, errors.New(`calling "tools/call": no reason`)
		})
		e := requireLost(t, err)
		assert.Positive(t, e.RetryAfter, "the call reports the loss")
		assert.ErrorContains(t, e.Err, "no reason")
		require.NoError(t, s.Close())
	})
}
