package devtools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/coder/websocket"
)

// A LostError says that the connection was lost before there was an answer.
type LostError struct {
	Sent bool // the request was, perhaps in part: whether it took effect is not known
	Err  error
}

func (e *LostError) Error() string { return "the connection to the page is lost: " + e.Err.Error() }
func (e *LostError) Unwrap() error { return e.Err }

// An Exception is what an expression threw.
type Exception struct{ Text string }

func (e *Exception) Error() string { return "the page threw " + e.Text }

// A RefusedError is the browser's answer to a request that it can't fulfil, because the
// page has crashed, say.
type RefusedError struct{ Text string }

func (e *RefusedError) Error() string { return "the browser refused: " + e.Text }

// Evaluate evaluates an expression in the page and unmarshals its value, which is null for
// undefined, into value. It returns ctx's error if that ends first; what the page is doing
// then goes on, and the connection stays as it is.
func (p *Page) Evaluate(ctx context.Context, expression string, value any) error {
	params := struct {
		Expression    string `json:"expression"`
		ReturnByValue bool   `json:"returnByValue"`
	}{expression, true}
	m, err := p.call(ctx, "Runtime.evaluate", params)
	if err != nil {
		return err
	}
	var out struct {
		Result struct {
			Type  string          `json:"type"`
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if err := json.Unmarshal(m.Result, &out); err != nil {
		return fmt.Errorf("an answer that can't be understood: %w", err)
	}
	if x := out.ExceptionDetails; x != nil {
		if x.Exception.Description != "" {
			x.Text = x.Exception.Description
		}
		return &Exception{firstLine(x.Text)} // the others are the stack
	}
	if out.Result.Type == "undefined" {
		out.Result.Value = json.RawMessage("null")
	}
	if err := json.Unmarshal(out.Result.Value, value); err != nil {
		return fmt.Errorf("a value that can't be understood: %w", err)
	}
	return nil
}

// call makes a request and waits for the answer to it.
func (p *Page) call(ctx context.Context, method string, params any) (message, error) {
	id, answer, err := p.expect()
	if err != nil {
		return message{}, &LostError{Sent: false, Err: err}
	}
	defer p.forget(id)
	request := struct {
		ID     int64  `json:"id"`
		Method string `json:"method"`
		Params any    `json:"params"`
	}{id, method, params}
	data, err := json.Marshal(request)
	if err != nil {
		return message{}, err
	}
	if err := p.write(data); err != nil {
		p.end(err)
		return message{}, &LostError{Sent: true, Err: p.Err()}
	}
	select {
	case m := <-answer:
		return m, refused(m)
	case <-ctx.Done():
		return message{}, ctx.Err()
	case <-p.done:
	}
	select {
	case m := <-answer: // came just before the end
		return m, refused(m)
	default:
		return message{}, &LostError{Sent: true, Err: p.Err()}
	}
}

// write doesn't take the context of the call that it is for: if that ended in the midst of
// it, the whole connection would have to be closed, for all other calls too.
func (p *Page) write(data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	return p.ws.Write(ctx, websocket.MessageText, data)
}

func (p *Page) expect() (id int64, answer chan message, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, nil, p.err
	}
	p.last++
	answer = make(chan message, 1)
	p.waiting[p.last] = answer
	return p.last, answer, nil
}

func (p *Page) forget(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

func refused(m message) error {
	if m.Error == nil {
		return nil
	}
	return &RefusedError{firstLine(m.Error.Message)}
}

// firstLine returns as much of a text as an agent should read of it.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	const most = 300
	if len(line) <= most {
		return line
	}
	end := most
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}
