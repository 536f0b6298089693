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

// A wire connects a client to a server in the same process, and is the session of both. mcp-go
// has such a transport, but that of its older versions doesn't pass notifications on.
type wire struct {
	*server.InProcessSession
	server        *server.MCPServer
	notifications chan mcp.JSONRPCNotification
	closed        chan struct{}
	close         func()

	mu             sync.Mutex
	onNotification func(mcp.JSONRPCNotification)
}

var _ transport.Interface = (*wire)(nil)

func newWire(s *server.MCPServer) *wire {
	w := &wire{
		InProcessSession: server.NewInProcessSession("s", nil),
		server:           s,
		notifications:    make(chan mcp.JSONRPCNotification, 100),
		closed:           make(chan struct{}),
	}
	w.close = sync.OnceFunc(func() { close(w.closed) })
	return w
}

// connect returns a client in the same process, which is closed when the test ends.
func connect(t *testing.T, s *server.MCPServer) *client.Client {
	t.Helper()
	c := client.NewClient(newWire(s))
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
	return w.server.RegisterSession(ctx, w)
}

func (w *wire) forward() {
	for {
		select {
		case n := <-w.notifications:
			w.mu.Lock()
			f := w.onNotification
			w.mu.Unlock()
			if f != nil {
				f(n)
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
	return json.Marshal(w.server.HandleMessage(w.server.WithContext(ctx, w), b))
}

func (w *wire) SetNotificationHandler(f func(mcp.JSONRPCNotification)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onNotification = f
}

func (w *wire) Close() error {
	w.close()
	w.server.UnregisterSession(context.Background(), w.SessionID())
	return nil
}

func (w *wire) GetSessionId() string { return w.SessionID() }
