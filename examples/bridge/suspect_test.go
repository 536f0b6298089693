package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tunnel passes bytes on between a client and a server, until it swallows them: then the connections through it are
// half-open, as after a laptop's sleep.
type tunnel struct {
	net.Listener
	server    string
	swallowed atomic.Bool // by connections that were made before
}

func (t *tunnel) serve() {
	for {
		client, err := t.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", t.server)
		if err != nil {
			_ = client.Close()
			return
		}
		swallow := t.swallowed.Load() // then this is the next connection, which works
		pass := func(to io.WriteCloser, from io.Reader) {
			defer to.Close()
			buf := make([]byte, 1024)
			for {
				n, err := from.Read(buf)
				if err != nil {
					return
				}
				if t.swallowed.Load() == swallow {
					_, _ = to.Write(buf[:n])
				}
			}
		}
		go pass(client, server)
		go pass(server, client)
	}
}

// The example of docs/guide.md replaces a connection that is half-open.
func TestAHalfOpenWebSocketIsReplaced(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		for err == nil {
			var kind websocket.MessageType
			var data []byte
			if kind, data, err = ws.Read(r.Context()); err == nil {
				err = ws.Write(r.Context(), kind, data)
			}
		}
	}))
	t.Cleanup(server.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	between := &tunnel{Listener: listener, server: strings.TrimPrefix(server.URL, "http://")}
	go between.serve()

	answers := make(chan string, 100)
	browser := resilience.NewConnector(func(ctx context.Context) (*websocket.Conn, error) {
		ws, _, err := websocket.Dial(ctx, "ws://"+listener.Addr().String(), nil)
		return ws, err
	}, resilience.ConnectorConfig[*websocket.Conn]{
		Backoff: resilience.Backoff{Base: time.Millisecond},
		Close:   (*websocket.Conn).CloseNow,
		Watch: func(ws *websocket.Conn) error {
			for {
				_, data, err := ws.Read(context.Background())
				if err != nil {
					return err
				}
				answers <- string(data)
			}
		},
		Check:        func(ctx context.Context, ws *websocket.Conn) error { return ws.Ping(ctx) },
		CheckTimeout: time.Second,
	})
	t.Cleanup(func() { _ = browser.Close() })

	ask := func(timeout time.Duration) (*resilience.Conn[*websocket.Conn], error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := browser.Wait(ctx)
		if err != nil {
			return nil, err
		}
		if err = conn.Value().Write(ctx, websocket.MessageText, []byte("title")); err == nil {
			select {
			case <-answers:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			conn.Suspect(err)
		}
		return conn, err
	}
	first, err := ask(patience)
	require.NoError(t, err)

	between.swallowed.Store(true)
	conn, err := ask(100 * time.Millisecond)
	assert.Same(t, first, conn)
	assert.ErrorIs(t, err, context.DeadlineExceeded)

	assert.Eventually(t, func() bool {
		again, err := browser.Get(ctx)
		return err == nil && again != first
	}, patience, time.Millisecond)
	_, err = ask(patience)
	assert.NoError(t, err)
}
