// Package devtools evaluates expressions in the page of a browser, through the Chrome DevTools
// Protocol. It depends neither on MCP nor on resilience: a Page is a single connection, and once
// that is lost, a new Page is needed.
package devtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// maxMessage is longer than any answer to the bridge's requests. A peer that sends more isn't
	// a browser, and must not fill the memory.
	maxMessage = 1 << 20

	// writeTimeout is generous. A request is smaller than the buffers on its way, so if it can't
	// be written at once, the browser doesn't read.
	writeTimeout = 5 * time.Second
)

// Config says which page to connect to.
type Config struct {
	// Browser is the URL at which the browser listens, such as "http://127.0.0.1:9222".
	Browser string

	// Prefix is how the page's URL starts. If it is empty, any page will do.
	Prefix string

	// Ping is how often the browser is pinged, and how long it has to answer. It must be positive.
	Ping time.Duration
}

// A Page is a connection to a page in a browser. Its methods are safe for concurrent use.
type Page struct {
	ws      *websocket.Conn
	done    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex             // guards what follows
	last    int64                  // id of the last request
	waiting map[int64]chan message // receive the answers, by the ids of the requests
	err     error                  // why the connection has ended; nil while it is up
}

// Dial connects to the first page that matches cfg. The context bounds the dial, not the
// connection.
func Dial(ctx context.Context, cfg Config) (*Page, error) {
	url, err := find(ctx, cfg.Browser, cfg.Prefix)
	if err != nil {
		return nil, err
	}

	ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxMessage)

	p := &Page{ws: ws, done: make(chan struct{}), waiting: make(map[int64]chan message)}
	p.running.Go(p.read)
	p.running.Go(func() { p.ping(cfg.Ping) })
	return p, nil
}

// Done returns a channel that is closed when the connection has ended.
func (p *Page) Done() <-chan struct{} { return p.done }

// Err returns why the connection has ended. It returns nil while the connection is up.
func (p *Page) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Close closes the connection and waits for its goroutines. There is no closing handshake: a
// browser doesn't need one, and one that hangs wouldn't answer. Close always returns nil.
func (p *Page) Close() error {
	p.end(net.ErrClosed)
	p.running.Wait()
	return nil
}

// end ends the connection. Only the first call has an effect.
func (p *Page) end(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = err
		close(p.done)
	}
	p.mu.Unlock()

	if first {
		_ = p.ws.CloseNow() // nothing is left that its error could be about
	}
}

// read delivers the answers until the connection breaks.
func (p *Page) read() {
	for {
		_, data, err := p.ws.Read(context.Background())
		if err == nil {
			err = p.dispatch(data)
		}
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err) // without a closing handshake, EOF is a loss
		}
		if err != nil {
			p.end(err)
			return
		}
	}
}

// A message is an answer or an event. Events have no id.
type message struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// dispatch delivers a message. It returns an error for anything else, since what follows can't be
// trusted then. An answer that no call waits for is ignored, because its caller may have left.
func (p *Page) dispatch(data []byte) error {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("the browser sent an invalid message: %w", err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if answer, ok := p.waiting[m.ID]; ok {
		delete(p.waiting, m.ID)
		answer <- m // the channel has room for it
	}
	return nil
}

// ping ends the connection if the browser doesn't react any more, because its process is stopped
// or its machine is off. If merely the page is busy, the browser still answers.
func (p *Page) ping(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-ticker.C:
		}

		ctx, cancel := context.WithTimeout(context.Background(), every)
		err := p.ws.Ping(ctx)
		cancel()
		if err != nil {
			p.end(fmt.Errorf("no answer to a ping within %s: %w", every, err))
			return
		}
	}
}
