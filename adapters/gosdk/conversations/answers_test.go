package conversations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"pgregory.net/rapid"
)

// An answer is what a handler does, whose server is guarded or not.
type answer struct {
	typed      bool   // by mcp.AddTool
	fails      string // one of failures; empty: it returns a result
	wraps      bool   // the error
	panics     string // one of crashes; empty: it doesn't
	isError    bool
	items      []string // of contents
	structured string   // one of structures
	meta       string   // one of metas
	setError   string   // one of failures

	counts   string // one of counts: the guard's option
	hides    bool   // so is this
	protocol string
}

const (
	secret  = "hunter2-of-the-admin"
	goError = "what the handler says"
)

var failures = map[string]error{
	"plain":               errors.New(goError),
	"secret":              errors.New(goError + ": password=" + secret),
	"invalid":             resilience.MarkInvalid(errors.New(goError)),
	"neutral":             resilience.MarkNeutral(errors.New(goError)),
	"backend":             resilience.MarkBackend(errors.New(goError)),
	"transient":           resilience.MarkTransient(errors.New(goError)),
	"permanent":           resilience.MarkPermanent(errors.New(goError)),
	"own":                 &resilience.Error{Code: "QUOTA", Message: "the quota is used up", Suggestion: "Wait."},
	"own, with a secret":  &resilience.Error{Code: "QUOTA", Message: "no: password=" + secret},
	"protocol":            &jsonrpc.Error{Code: -32050, Message: "a protocol error"},
	"invalid params":      &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "a protocol error"},
	"with data":           &jsonrpc.Error{Code: -32050, Message: "a protocol error", Data: json.RawMessage(`{"a":1}`)},
	"with a secret":       &jsonrpc.Error{Code: -32050, Message: "token=" + secret, Data: json.RawMessage(`{"a":1}`)},
	"with data of no use": &jsonrpc.Error{Code: -32050, Message: "a protocol error", Data: json.RawMessage(`{`)},
	"deadline":            context.DeadlineExceeded,
	"canceled":            context.Canceled,
	"EOF":                 io.EOF,
	"reset":               &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
	"joined":              errors.Join(errors.New(goError), io.ErrUnexpectedEOF),
}

var crashes = map[string]func(){
	"a text":  func() { panic("password=" + secret) },
	"an exit": runtime.Goexit,
	"nil":     func() { panic(error(nil)) },
}

var contents = map[string]mcp.Content{
	"text":   &mcp.TextContent{Text: "a text"},
	"empty":  &mcp.TextContent{},
	"secret": &mcp.TextContent{Text: "api_key=" + secret},
	"image":  &mcp.ImageContent{Data: []byte("x"), MIMEType: "image/png"},
	"link":   &mcp.ResourceLink{URI: "file:///x", Name: "x"},
	"noted":  &mcp.TextContent{Text: "a text", Meta: mcp.Meta{"a": 1}},
	"no use": &mcp.TextContent{Text: "a text", Meta: mcp.Meta{"a": math.NaN()}},
}

var structures = map[string]any{
	"object": map[string]any{"a": 1.5, "b": []any{"x"}}, "raw": json.RawMessage(`{"a":1}`), "number": 7,
	"no use": map[string]any{"a": math.Inf(1)}, "raw, no use": json.RawMessage(`{"a"`),
}

var metas = map[string]mcp.Meta{
	"own": {"example.com/a": 1.0}, "no use": {"a": func() {}},
	"ours": {resilience.MetaError: map[string]any{"code": "MINE"}},
}

var counts = map[string]gosdk.FailureFunc{
	"known": gosdk.CountKnown, "all": gosdk.CountAll, "errors": gosdk.CountErrors, "none": gosdk.CountNone,
}

// oneOf draws a key, or rarely none.
func oneOf[T any](t *rapid.T, label string, all map[string]T, seldom bool) string {
	var keys []string
	for key := range all {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if seldom && between(t, label+"?", 0, 2) > 0 {
		return ""
	}
	return from(t, label, keys...)
}

func drawAnswer(t *rapid.T) (a answer) {
	a.typed = rapid.Bool().Draw(t, "typed")
	a.fails = oneOf(t, "fails", failures, true)
	a.wraps = rapid.Bool().Draw(t, "wraps")
	if between(t, "panics?", 0, 9) == 9 {
		a.panics = oneOf(t, "panics", crashes, false)
	}
	a.isError = rapid.Bool().Draw(t, "isError")
	for range between(t, "items", 0, 3) {
		a.items = append(a.items, oneOf(t, "item", contents, false))
	}
	a.structured = oneOf(t, "structured", structures, true)
	a.meta = oneOf(t, "meta", metas, true)
	a.setError = oneOf(t, "setError", failures, true)
	a.counts = oneOf(t, "counts", counts, false)
	a.hides = rapid.Bool().Draw(t, "hides")
	a.protocol = from(t, "protocol", "2026-07-28", "2025-11-25")
	return a
}

// err returns the error that the handler returns.
func (a answer) err() error {
	err := failures[a.fails]
	if err != nil && a.wraps {
		err = fmt.Errorf("it wraps: %w", err)
	}
	return err
}

func (a answer) result() *mcp.CallToolResult {
	res := &mcp.CallToolResult{IsError: a.isError, Content: []mcp.Content{}, StructuredContent: structures[a.structured]}
	for _, item := range a.items {
		res.Content = append(res.Content, contents[item])
	}
	if err := failures[a.setError]; err != nil {
		res.SetError(err)
	}
	if a.meta != "" {
		res.Meta = metas[a.meta]
	}
	return res
}

// isOfUse reports whether the SDK can send the answer.
func (a answer) isOfUse() bool {
	switch {
	case a.panics != "", a.fails == "with data of no use":
		return false
	}
	if a.fails != "" {
		return true
	}
	return a.meta != "no use" && !slices.Contains(a.items, "no use") && !strings.Contains(a.structured, "no use")
}

// A reply is what the client gets.
type reply struct {
	res *mcp.CallToolResult
	err error
}

func (r reply) String() string {
	text, _ := json.Marshal(r.res)
	return fmt.Sprintf("%s, error: %v", text, r.err)
}

// ask asks a server with such a handler, which protect may protect. The server must then still serve.
func (a answer) ask(t *rapid.T, protect func(*mcp.Server)) (r reply) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	handle := func() (*mcp.CallToolResult, error) {
		if a.panics != "" {
			crashes[a.panics]()
		}
		if err := a.err(); err != nil {
			return nil, err
		}
		return a.result(), nil
	}
	if a.typed {
		mcp.AddTool(server, &mcp.Tool{Name: "x"},
			func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				res, err := handle()
				return res, nil, err
			})
	} else {
		server.AddTool(&mcp.Tool{Name: "x", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return handle() })
	}
	protect(server)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	serverEnd, clientEnd := mcp.NewInMemoryTransports()
	session, err := server.Connect(ctx, serverEnd, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	cs, err := client.Connect(ctx, clientEnd, &mcp.ClientSessionOptions{ProtocolVersion: a.protocol})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()

	if _, err := cs.ListTools(ctx, nil); err != nil {
		t.Fatal(err)
	}
	r.res, r.err = cs.CallTool(ctx, &mcp.CallToolParams{Name: "x", Arguments: map[string]any{}})
	if _, err := cs.ListTools(ctx, nil); err != nil {
		t.Fatalf("the session is lost: %v, after %s of %+v", err, r, a)
	}
	return r
}

// A client gets what it would get without a guard, and whatever a handler does, it gets an answer.
func TestAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAnswer(t)
		guard := resilience.Must(resilience.New(resilience.Config{
			Retry: resilience.Retry{MaxRetries: -1}, Log: slog.New(slog.DiscardHandler),
		}))
		opts := []gosdk.Option{gosdk.Failure(counts[a.counts])}
		if a.hides {
			opts = append(opts, gosdk.HideErrors())
		}
		got := a.ask(t, func(s *mcp.Server) { gosdk.Protect(s, guard, opts...) })
		var bare reply
		if a.isOfUse() {
			bare = a.ask(t, func(*mcp.Server) {})
		}

		for what, holds := range map[string]bool{
			"a secret":            a.keepsSecrets(got),
			"what is hidden":      !a.hides || a.keepsHidden(got),
			"another answer":      !a.isOfUse() || a.stands(bare, got),
			"what doesn't count":  !a.isMistake() || guard.Breaker("x").Failures() == 0,
			"what counts":         !a.isTrouble() || guard.Breaker("x").Failures() == 1,
			"no answer to no use": a.isOfUse() || got.res != nil && got.res.IsError || got.err != nil,
		} {
			if !holds {
				failures := guard.Breaker("x").Failures()
				t.Fatalf("%s: %+v\nwith a guard: %s\nwithout one: %s\nfailures: %d", what, a, got, bare, failures)
			}
		}
	})
}

// failed reports whether the answer is that of a failure.
func (a answer) failed() bool {
	return a.panics != "" || a.fails != "" || a.isError || a.setError != "" || !a.isOfUse()
}

func (a answer) keepsSecrets(got reply) bool {
	return !a.failed() || !strings.Contains(got.String(), secret)
}

// keepsHidden reports whether nothing of the text of a Go error is read.
func (a answer) keepsHidden(got reply) bool {
	return !strings.Contains(got.String(), goError) && !strings.Contains(got.String(), "it wraps")
}

// isMistake reports whether nothing says that the backend is in trouble.
func (a answer) isMistake() bool {
	if a.panics != "" || !a.isOfUse() {
		return false
	}
	switch a.says() {
	case "invalid", "neutral":
		return true
	case "plain", "secret", "protocol", "invalid params", "with data", "with a secret", "canceled", "":
		return a.counts == "known" || a.counts == "none"
	}
	return false
}

// isTrouble reports whether the handler says that the backend is in trouble.
func (a answer) isTrouble() bool {
	switch a.says() {
	case "backend", "transient", "permanent", "deadline", "reset":
		return a.panics == "" && a.isOfUse() && (a.counts != "none" || a.fails != "" && !a.typed)
	}
	return false
}

// says returns the failure that the answer stands for.
func (a answer) says() string {
	if a.fails != "" {
		return a.fails
	}
	return a.setError
}

// stands reports whether the answer is what it is without a guard, but for what the guard adds.
func (a answer) stands(bare, got reply) bool {
	own := strings.HasPrefix(a.fails, "own")
	switch {
	case a.hides && (a.fails != "" || a.setError != ""), own:
		return got.err != nil || got.res.IsError
	case bare.err != nil:
		return got.err != nil && a.sameError(bare.err, got.err)
	case got.err != nil || bare.res.IsError != got.res.IsError || len(got.res.Content) < len(bare.res.Content):
		return false
	case !a.failed():
		return bare.String() == got.String()
	}
	for i, c := range bare.res.Content {
		text, _ := json.Marshal(c)
		same, _ := json.Marshal(got.res.Content[i])
		if string(text) != string(same) && !strings.Contains(string(text), secret) {
			return false
		}
	}
	for key, v := range bare.res.Meta {
		if key != resilience.MetaError && fmt.Sprint(got.res.Meta[key]) != fmt.Sprint(v) {
			return false
		}
	}
	return fmt.Sprint(bare.res.StructuredContent) == fmt.Sprint(got.res.StructuredContent) &&
		len(got.res.Content) <= len(bare.res.Content)+1
}

// sameError reports whether two protocol errors are the same, but for a secret and the guard's data.
func (a answer) sameError(bare, got error) bool {
	var without, with *jsonrpc.Error
	if !errors.As(bare, &without) || !errors.As(got, &with) {
		return errors.As(got, &with) == errors.As(bare, &without)
	}
	data := without.Data == nil || string(without.Data) == string(with.Data)
	return without.Code == with.Code && data &&
		(without.Message == with.Message || strings.Contains(without.Message, secret))
}
