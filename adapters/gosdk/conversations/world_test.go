//lint:file-ignore SA1019 servers still log
package conversations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// A world is a conversation that takes place, and what was seen of it.
type world struct {
	conversation
	begun    time.Time
	guard    *resilience.Guard
	callers  []*mcp.ClientSession
	sessions []*mcp.ServerSession // of the server, with the same indexes
	gone     []chan struct{}      // of the clients: closed once it has vanished
	vanish   []func()

	mu       sync.Mutex // guards what follows
	messages []*message
	byText   map[string]*message
	outcomes []*outcome // of the calls, with the same indexes
	attempts []*attempt
	ended    time.Duration // when all calls had ended
}

// A day is longer than what any conversation takes.
const day = 24 * time.Hour

// A message is a step of a tool, or one of several.
type message struct {
	step
	*attempt
	thread int
	to     int // which client
	text   string

	begun, ended time.Duration
	err          error
	inVain       bool // its context had ended by then
	read         time.Duration
	order        int // of what its client has read, from 1; 0 if it hasn't
}

// own reports whether the message is sent as one to the client of its call.
func (m *message) own(of *conversation) bool {
	return m.kind != tellApart && m.to == of.calls[m.call].client
}

func (m *message) String() string {
	return fmt.Sprintf("%s of %+v to %d (%s to %s, read at %s, error: %v, %+v)",
		m.text, *m.attempt, m.to, m.begun, m.ended, m.read, m.err, m.step)
}

// An outcome is what the caller has seen of a call.
type outcome struct {
	answered time.Duration
	ok       bool
	timedOut bool
}

// An attempt is one of a call.
type attempt struct {
	call, nth         int
	started, returned time.Duration // returned is zero while the tool runs
	cut               time.Duration // when its context ended
}

// run lets a conversation take place.
func run(t *testing.T, c conversation) *world {
	w := &world{conversation: c, byText: make(map[string]*message)}
	var crash any
	synctest.Test(t, func(t *testing.T) {
		defer func() { crash = recover() }()
		w.begun = time.Now().Add(-1) // so that no time is zero
		w.serve(t)
		w.talk(t)
	})
	if crash != nil {
		panic(crash)
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.begun) }

// serve connects the clients to a server that is guarded.
func (w *world) serve(t *testing.T) {
	w.guard = resilience.Must(resilience.New(resilience.Config{
		Breaker: resilience.BreakerConfig{Failures: 100},
		Tools: map[string]resilience.Tool{"x": {
			Timeout: w.timeout, AttemptTimeout: w.attemptTimeout, MaxTimeout: w.maxTimeout, Effect: resilience.ReadOnly,
			Retry: &resilience.Retry{Backoff: resilience.Backoff{Base: 10 * ms, Max: 10 * ms}, MaxElapsed: -1},
		}},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}))
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "x", InputSchema: json.RawMessage(`{"type":"object"}`)}, w.tool)
	server.AddSendingMiddleware(w.reading())
	gosdk.Protect(server, w.guard)

	for i, c := range w.clients {
		client := mcp.NewClient(&mcp.Implementation{Name: fmt.Sprint(i), Version: "1"}, &mcp.ClientOptions{
			ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				time.Sleep(c.thinks)
				return &mcp.ElicitResult{Action: "accept"}, nil
			},
		})
		serverEnd, clientEnd := net.Pipe()
		session, err := server.Connect(t.Context(), &mcp.IOTransport{Reader: serverEnd, Writer: serverEnd}, nil)
		if err != nil {
			panic(err)
		}
		transport := &mcp.IOTransport{Reader: clientEnd, Writer: clientEnd}
		cs, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		if err != nil {
			panic(err)
		}
		if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
			panic(err)
		}
		w.sessions, w.callers = append(w.sessions, session), append(w.callers, cs)
		gone := make(chan struct{})
		w.gone = append(w.gone, gone)
		w.vanish = append(w.vanish, sync.OnceFunc(func() {
			close(gone)
			_ = clientEnd.Close()
		}))
	}
	for i, c := range w.clients {
		if c.vanishes > 0 {
			time.AfterFunc(c.vanishes, w.vanish[i])
		}
	}
}

// talk makes the calls, and waits until all is over and read.
func (w *world) talk(t *testing.T) {
	var calls sync.WaitGroup
	for i, c := range w.calls {
		seen := &outcome{}
		w.outcomes = append(w.outcomes, seen)
		time.Sleep(c.after)
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.leaves > 0 {
				defer time.AfterFunc(c.leaves, cancel).Stop()
			}
			res, err := w.callers[c.client].CallTool(ctx, &mcp.CallToolParams{
				Name: "x", Arguments: map[string]any{"call": i}, Meta: mcp.Meta{"progressToken": fmt.Sprint("p", i)},
			})
			seen.answered, seen.ok = w.now(), err == nil && !res.IsError
			seen.timedOut = err == nil && res.IsError && strings.Contains(textOf(res), string(resilience.CodeTimeout))
		})
	}
	calls.Wait()
	if w.ended = w.now(); w.ended < day { // otherwise no time is left
		time.Sleep(time.Hour)
	}
	for _, vanish := range w.vanish {
		vanish()
	}
	synctest.Wait()
}

// reading is sending middleware that writes one message to each client at a time, for as long as that takes to read it.
func (w *world) reading() mcp.Middleware {
	writing := make(map[mcp.Session]chan struct{})
	read := make(map[mcp.Session]int)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			text, ok := messageOf(req.GetParams())
			if !ok && method != "ping" {
				return next(ctx, method, req)
			}

			session := req.GetSession()
			w.mu.Lock()
			if writing[session] == nil {
				writing[session] = make(chan struct{}, 1)
			}
			turn := writing[session]
			w.mu.Unlock()
			turn <- struct{}{} // whatever becomes of the context, as in the SDK
			w.waitUntilRead(session)

			w.mu.Lock()
			if m := w.byText[text]; m != nil {
				read[session]++
				m.read, m.order = w.now(), read[session]
			}
			w.mu.Unlock()
			<-turn
			return next(ctx, method, req)
		}
	}
}

// waitUntilRead waits until the client has read what is being written.
func (w *world) waitUntilRead(session mcp.Session) {
	for i, s := range w.sessions {
		if mcp.Session(s) != session {
			continue
		}
		now, end := w.now(), time.Duration(0)
		for _, spell := range w.clients[i].reads {
			if end += spell.lasts; now < end {
				select {
				case <-time.After(min(spell.takes, end-now)):
				case <-w.gone[i]:
				}
				return
			}
		}
	}
}

// textOf returns the text of a result.
func textOf(res *mcp.CallToolResult) string { return res.Content[0].(*mcp.TextContent).Text }

// messageOf returns the text of a message.
func messageOf(params mcp.Params) (string, bool) {
	switch p := params.(type) {
	case *mcp.LoggingMessageParams:
		text, ok := p.Data.(string)
		return text, ok
	case *mcp.ProgressNotificationParams:
		return p.Message, true
	case *mcp.ElicitParams:
		return p.Message, true
	}
	return "", false
}

// tool is the handler of the tool.
func (w *world) tool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct{ Call int }
	if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
		return nil, err
	}
	c, a := w.calls[args.Call], &attempt{call: args.Call, nth: resilience.Attempt(ctx), started: w.now()}
	w.mu.Lock()
	w.attempts = append(w.attempts, a)
	w.mu.Unlock()
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		a.cut = w.now()
	})
	for i := range c.threads[1:] {
		go w.do(ctx, req, a, i+1)
	}
	w.do(ctx, req, a, 0)

	w.mu.Lock()
	defer w.mu.Unlock()
	a.returned = w.now()
	if c.obeys && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if a.nth <= c.fails {
		return nil, resilience.MarkTransient(errors.New("no luck"))
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
}

// do does the steps of a thread.
func (w *world) do(ctx context.Context, req *mcp.CallToolRequest, a *attempt, thread int) {
	n := 0
	for _, s := range w.calls[a.call].threads[thread] {
		if s.kind == work {
			w.work(ctx, a, s.lasts)
			continue
		}
		for range max(s.times, 1) {
			n++
			text := fmt.Sprintf("%d/%d/%d/%d", a.call, a.nth, thread, n)
			w.send(ctx, req, &message{step: s, attempt: a, thread: thread, text: text})
		}
	}
}

// work takes some time, unless the tool heeds the end of its context.
func (w *world) work(ctx context.Context, a *attempt, lasts time.Duration) {
	var over <-chan struct{}
	if w.calls[a.call].obeys {
		over = ctx.Done()
	}
	select {
	case <-time.After(lasts):
	case <-over:
	}
}

// send sends a message, and notes what becomes of it.
func (w *world) send(ctx context.Context, req *mcp.CallToolRequest, m *message) {
	m.to = w.calls[m.call].client
	if m.kind == tell || m.kind == tellApart {
		m.to = m.step.to
	}
	w.mu.Lock()
	w.messages = append(w.messages, m)
	w.byText[m.text] = m
	nth := len(w.messages)
	w.mu.Unlock()

	m.begun = w.now()
	session := w.sessions[m.to]
	switch m.kind {
	case log, tell:
		m.err = session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: m.text})
	case tellApart:
		m.err = session.Log(context.Background(), &mcp.LoggingMessageParams{Level: "error", Data: m.text})
	case progress:
		m.err = session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: req.Params.GetProgressToken(), Progress: float64(nth), Message: m.text,
		})
	case ask:
		_, m.err = session.Elicit(ctx, &mcp.ElicitParams{
			Message: m.text, RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`),
		})
	case ping:
		m.err = session.Ping(ctx, nil)
	}
	m.ended = w.now()
	m.inVain = m.kind != tellApart && ctx.Err() != nil
}
