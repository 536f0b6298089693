package mcpgo_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"
)

// A wire joins a client and a server in one process, and is the session of both. Older versions
// of mcp-go have one that doesn't pass notifications on.
type wire struct {
	*server.InProcessSession
	to            *server.MCPServer
	notifications chan mcp.JSONRPCNotification
	closed        chan struct{}
	close         func()

	mu sync.Mutex
	on func(mcp.JSONRPCNotification)
}

var _ transport.Interface = (*wire)(nil)

// newWire returns a wire to s. The user, who may be nil, answers what s asks.
func newWire(s *server.MCPServer, u server.ElicitationHandler) *wire {
	w := &wire{
		InProcessSession: server.NewInProcessSessionWithHandlers("s", nil, u, nil),
		to:               s,
		notifications:    make(chan mcp.JSONRPCNotification, 100),
		closed:           make(chan struct{}),
	}
	w.close = sync.OnceFunc(func() { close(w.closed) })
	return w
}

// connect returns a client in the same process, with a user if u isn't nil. Close it before a
// bubble ends.
func connect(t *testing.T, s *server.MCPServer, u *user) *client.Client {
	t.Helper()
	var asked server.ElicitationHandler
	var opts []client.ClientOption
	if u != nil {
		asked, opts = u, append(opts, client.WithElicitationHandler(u))
	}
	c := client.NewClient(newWire(s, asked), opts...)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { _ = c.Close() })

	var init mcp.InitializeRequest
	init.Params.ProtocolVersion = legacy
	_, err := c.Initialize(t.Context(), init)
	require.NoError(t, err)
	return c
}

func (w *wire) NotificationChannel() chan<- mcp.JSONRPCNotification { return w.notifications }

func (w *wire) Start(ctx context.Context) error {
	go w.forward()
	return w.to.RegisterSession(ctx, w)
}

func (w *wire) forward() {
	for {
		select {
		case n := <-w.notifications:
			w.mu.Lock()
			on := w.on
			w.mu.Unlock()
			if on != nil {
				on(n)
			}
		case <-w.closed:
			return
		}
	}
}

func (w *wire) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	answer, err := w.send(ctx, req)
	if err != nil {
		return nil, err
	}
	var res transport.JSONRPCResponse
	return &res, json.Unmarshal(answer, &res)
}

func (w *wire) SendNotification(ctx context.Context, n mcp.JSONRPCNotification) error {
	_, err := w.send(ctx, n)
	return err
}

func (w *wire) send(ctx context.Context, message any) ([]byte, error) {
	b, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	return json.Marshal(w.to.HandleMessage(w.to.WithContext(ctx, w), b))
}

func (w *wire) SetNotificationHandler(on func(mcp.JSONRPCNotification)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = on
}

func (w *wire) Close() error {
	w.close()
	w.to.UnregisterSession(context.Background(), w.SessionID())
	return nil
}

func (w *wire) GetSessionId() string { return w.SessionID() }
