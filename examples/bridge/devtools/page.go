// Package devtools speaks as much of the Chrome DevTools Protocol as it takes to evaluate
// expressions in a page. It knows nothing of MCP or of resilience: a Page is one
// connection, and when that is lost the Page is of no more use.
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
	// maxMessage is more than any answer to what the bridge asks. A browser that sends more
	// is not one, and must not fill the memory.
	maxMessage = 1 << 20

	// writeTimeout is long: a request is smaller than the buffers on its way, so one that
	// can't be written at once means that nobody reads.
	writeTimeout = 5 * time.Second
)

// Config says which page to connect to.
type Config struct {
	Browser string        // where the browser listens, such as "http://127.0.0.1:9222"
	Prefix  string        // what the page's address begins with; "": any page
	Ping    time.Duration // how often the browser is pinged, and how long it has to answer
}

// A Page is a connection to a page in a browser. Its methods are safe for concurrent use.
type Page struct {
	ws      *websocket.Conn
	done    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	last    int64                  // id of the last request
	waiting map[int64]chan message // for the answers, by the ids of the requests
	err     error                  // why the connection is over; nil while it isn't
}

// Dial connects to the first page that is as cfg says. The context limits the dialling,
// not the connection.
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

// Done returns a channel that is closed when the connection is over.
func (p *Page) Done() <-chan struct{} { return p.done }

// Err returns why the connection is over, nil while it isn't.
func (p *Page) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Close ends the connection and everything that goes with it. It says no goodbye: a
// browser needs none, and one that hangs would have to be waited for.
func (p *Page) Close() error {
	p.end(net.ErrClosed)
	p.running.Wait()
	return nil
}

// end ends the connection; the first reason stays.
func (p *Page) end(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = err
		close(p.done)
	}
	p.mu.Unlock()
	if first {
		_ = p.ws.CloseNow() // there is nothing more that could be lost
	}
}

// read hands every answer to who waits for it, until the connection breaks.
func (p *Page) read() {
	for {
		_, data, err := p.ws.Read(context.Background())
		if err == nil {
			err = p.dispatch(data)
		}
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err) // a WebSocket doesn't end without a word
		}
		if err != nil {
			p.end(err)
			return
		}
	}
}

// A message is an answer, or an event, which has no id.
type message struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// dispatch returns an error for what is no message: nothing that follows it can be trusted.
// Answers that nobody waits for are no error: who asked may have left.
func (p *Page) dispatch(data []byte) error {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("the browser sent what is no message: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer, ok := p.waiting[m.ID]; ok {
		delete(p.waiting, m.ID)
		answer <- m // has room for it
	}
	return nil
}

// ping notices a browser that is there but does nothing any more: a process that is
// stopped, a machine that is off. A page that is merely busy is none: its browser answers.
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
