package devtools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/coder/websocket"
)

// A LostError reports that the connection was lost before the browser answered.
type LostError struct {
	Sent bool  // the request was sent, at least in part, and may have taken effect
	Err  error // why the connection was lost
}

func (e *LostError) Error() string { return "the connection to the page is lost: " + e.Err.Error() }
func (e *LostError) Unwrap() error { return e.Err }

// An Exception reports what an expression threw.
type Exception struct{ Text string }

func (e *Exception) Error() string { return "the page threw " + e.Text }

// A RefusedError reports that the browser couldn't fulfil a request, for example because the
// page has crashed.
type RefusedError struct{ Text string }

func (e *RefusedError) Error() string { return "the browser refused: " + e.Text }

// Evaluate evaluates an expression in the page and unmarshals its value into value; undefined
// counts as null. If ctx ends first, Evaluate returns its error, while the page continues and the
// connection stays up.
//
// Its other errors are a *LostError, an *Exception or a *RefusedError, or say that an answer can't
// be decoded.
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
		return fmt.Errorf("the answer can't be decoded: %w", err)
	}

	if x := out.ExceptionDetails; x != nil {
		if x.Exception.Description != "" {
			x.Text = x.Exception.Description
		}
		return &Exception{firstLine(x.Text)} // the other lines are the stack
	}

	if out.Result.Type == "undefined" {
		out.Result.Value = json.RawMessage("null")
	}
	if err := json.Unmarshal(out.Result.Value, value); err != nil {
		return fmt.Errorf("the value can't be decoded: %w", err)
	}
	return nil
}

// Call sends a command of the protocol, such as Page.captureScreenshot, and unmarshals its result into result, unless
// that is nil. Params may be nil. If ctx ends first, Call returns its error. Its other errors are a *LostError or a
// *RefusedError, or say that the result can't be decoded.
func (p *Page) Call(ctx context.Context, method string, params, result any) error {
	m, err := p.call(ctx, method, params)
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		return fmt.Errorf("the result can't be decoded: %w", err)
	}
	return nil
}

// call sends a request and waits for its answer.
func (p *Page) call(ctx context.Context, method string, params any) (message, error) {
	id, answer, err := p.register()
	if err != nil {
		return message{}, &LostError{Sent: false, Err: err}
	}
	defer p.forget(id)

	request := struct {
		ID     int64  `json:"id"`
		Method string `json:"method"`
		Params any    `json:"params,omitempty"`
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
	case m := <-answer: // it arrived just before the end
		return m, refused(m)
	default:
		return message{}, &LostError{Sent: true, Err: p.Err()}
	}
}

// write doesn't use the context of a call. If that ended during the write, the connection would
// have to be closed for all other calls too.
func (p *Page) write(data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	return p.ws.Write(ctx, websocket.MessageText, data)
}

// register returns the id of a new request and the channel that receives its answer.
func (p *Page) register() (id int64, answer chan message, err error) {
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

// forget drops a request, whose answer is then ignored.
func (p *Page) forget(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// refused returns the error that an answer holds, nil if there is none.
func refused(m message) error {
	if m.Error == nil {
		return nil
	}
	return &RefusedError{firstLine(m.Error.Message)}
}

// firstLine returns the first line of a text, cut off if it is too long for an agent.
func firstLine(text string) string {
	const maxLength = 300
	line, _, _ := strings.Cut(text, "\n")
	if len(line) <= maxLength {
		return line
	}

	end := maxLength
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}
