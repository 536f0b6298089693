package gosdk_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialPlain dials a session over a transport that isn't gosdk.Transport.
func dialPlain(h *httpServer) func(context.Context) (*mcp.ClientSession, error) {
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: h.URL, DisableStandaloneSSE: true}, speaking(legacy))
	}
}

func makeMistake(ctx context.Context, s *gosdk.Session) error {
	_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: longArguments})
	return err
}

// The answer to a ping may come more slowly than a mistake has time for. To end the ping would end the session.
func TestSlowAnswerToAPingKeepsTheSession(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	pings, answers := make(chan struct{}, 10), make(chan struct{})
	intercept := func(w http.ResponseWriter, r *http.Request) bool {
		body := bodyOf(r)
		switch {
		case bytes.Contains(body, []byte(`"text":"xxx`)):
			w.WriteHeader(mistake)
			_, _ = io.WriteString(w, badRequest)
		case bytes.Contains(body, []byte(`"method":"ping"`)):
			pings <- struct{}{}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-answers:
			case <-r.Context().Done():
			}
			_, id, _ := bytes.Cut(body, []byte(`"id":`))
			id, _, _ = bytes.Cut(id, []byte(`,`))
			_, _ = fmt.Fprintf(w, `"id":%s,"result":{}}`, bytes.TrimRight(id, "}"))
		default:
			return false
		}
		return true
	}
	h.intercept.Store(&intercept)

	s := newSession(t, dialPlain(h), sessionConfig{})
	first := up(t, s)
	mistaken := make(chan error)
	for range 3 {
		go func() { mistaken <- makeMistake(t.Context(), s) }()
	}
	for range 3 {
		err := receive(t, mistaken)
		assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err), "%v", err)
	}

	close(answers)
	_, err := echo(t.Context(), s)
	assert.NoError(t, err)
	assert.True(t, first == up(t, s), "another session is up")
}

// A call that ends the session while a mistake's ping is under way is no reason to blame the server for the mistake.
func TestMistakeWhileAnotherCallEndsTheSession(t *testing.T) {
	h := serveHTTP(t, newPeer().server)
	pings := make(chan struct{})
	intercept := func(w http.ResponseWriter, r *http.Request) bool {
		body := bodyOf(r)
		switch {
		case bytes.Contains(body, []byte(`"text":"xxx`)):
			w.WriteHeader(mistake)
			_, _ = io.WriteString(w, badRequest)
		case bytes.Contains(body, []byte(`"method":"ping"`)):
			pings <- struct{}{}
			<-r.Context().Done()
		case bytes.Contains(body, []byte(`"text":"forbidden"`)):
			w.WriteHeader(http.StatusForbidden)
		default:
			return false
		}
		return true
	}
	h.intercept.Store(&intercept)

	s := newSession(t, dialPlain(h), sessionConfig{})
	first := up(t, s)
	mistaken := make(chan error, 1)
	go func() { mistaken <- makeMistake(t.Context(), s) }()
	receive(t, pings)
	params := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "forbidden"}}
	_, err := s.CallTool(t.Context(), params)
	require.Error(t, err)
	err = receive(t, mistaken)
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err), "%v", err)
	gone(t, s, first)
}

// What a call learns of the session doesn't depend on what others ask meanwhile: a mistake that the server has found before
// it forgot the session, or one whose ping hangs.
func TestForgottenSessionBesideAMistake(t *testing.T) {
	for name, ofMistake := range map[string]time.Duration{"whose ping is slow": 20 * time.Millisecond, "whose ping hangs": time.Hour} {
		inBubble(t, name, func(t *testing.T) {
			var pings atomic.Int64
			f := &scripted{answer: func(session, method, tool string) fakeAnswer {
				switch {
				case session != "1":
					return fakeAnswer{after: time.Millisecond}
				case tool == "mistake":
					return fakeAnswer{after: 10 * time.Millisecond, status: mistake, code: -32602}
				case method == "ping" && pings.Add(1) == 1:
					return fakeAnswer{after: ofMistake, status: unknownSession.status, code: unknownSession.code}
				case tool == "early":
					return fakeAnswer{after: 15 * time.Millisecond, status: unknownSession.status, code: unknownSession.code}
				case tool == "late":
					return fakeAnswer{after: 100 * time.Millisecond, status: unknownSession.status, code: unknownSession.code}
				}
				return unknownSession
			}}
			s, call := f.session(t)
			mistaken := make(chan error, 1)
			go func() { mistaken <- call("mistake") }()
			both := make(chan error, 2)
			for _, tool := range []string{"early", "late"} {
				go func() { both <- call(tool) }()
			}
			assert.NoError(t, <-both)
			assert.NoError(t, <-both)
			assert.Equal(t, resilience.ClassInvalid, resilience.Classify(<-mistaken))
			assert.NoError(t, s.Close())
		})
	}
}

// A call in flight is lost with its session, too, if a Probe has noticed the loss.
func TestForgottenSessionThatAProbeNotices(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		inBubble(t, fmt.Sprint(status), func(t *testing.T) {
			f := &scripted{answer: func(session, method, _ string) fakeAnswer {
				switch {
				case session != "1":
					return fakeAnswer{after: time.Millisecond}
				case method == "ping":
					return fakeAnswer{after: time.Millisecond, status: status, code: -32000}
				}
				return fakeAnswer{after: 100 * time.Millisecond, status: status, code: -32000}
			}}
			s, call := f.session(t)
			done := make(chan error, 1)
			go func() { done <- call("late") }()
			time.Sleep(50 * time.Millisecond)
			require.Error(t, s.Probe(t.Context()))
			assert.NoError(t, <-done)
			assert.NoError(t, s.Close())
		})
	}
}

// A gateway refuses pings as it refuses what a user may not do. An agent makes a mistake, too, each time.
func TestMistakesBesideWhatIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{answer: func(_, method, tool string) fakeAnswer {
			switch {
			case tool == "mistake":
				return fakeAnswer{after: 10 * time.Millisecond, status: mistake, code: -32602}
			case method == "ping":
				return fakeAnswer{after: 20 * time.Millisecond, status: http.StatusForbidden, code: -32001}
			case tool == "forbidden":
				return fakeAnswer{after: 15 * time.Millisecond, status: http.StatusForbidden, code: -32001}
			}
			return fakeAnswer{after: time.Millisecond}
		}}
		s, call := f.session(t)
		for range 8 {
			both := make(chan error, 2)
			for _, tool := range []string{"mistake", "forbidden"} {
				go func() { both <- call(tool) }()
			}
			assert.Error(t, <-both)
			assert.Error(t, <-both)
		}
		assert.LessOrEqual(t, f.sessions, 2)
		assert.NoError(t, call("fine"))
		assert.NoError(t, s.Close())
	})
}

// Close waits for no ping.
func TestCloseWhilePingsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{answer: func(_, method, _ string) fakeAnswer {
			if method == "ping" {
				return fakeAnswer{after: time.Hour}
			}
			return fakeAnswer{after: time.Millisecond, status: mistake, code: -32602}
		}}
		s, call := f.session(t)
		done := make(chan error, 100)
		for range cap(done) { // more than may ping
			go func() { done <- call("mistake") }()
		}
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		assert.NoError(t, s.Close())
		for range cap(done) {
			assert.Error(t, <-done)
		}
		assert.Less(t, time.Since(begin), time.Second)
	})
}

// An error of the client's middleware has methods that panic.
func TestErrorOfAPingThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{answer: func(string, string, string) fakeAnswer {
			return fakeAnswer{after: time.Millisecond, status: mistake, code: -32602}
		}}
		s, call := f.session(t, func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "ping" {
					return nil, panicking{}
				}
				return next(ctx, method, req)
			}
		})
		assert.Equal(t, resilience.ClassInvalid, resilience.Classify(call("mistake")))
		assert.NoError(t, s.Close())
	})
}

type panicking struct{}

func (panicking) Error() string { return "panicking" }
func (panicking) Is(error) bool { panic("Is") }

// However many calls are refused, at once or one after the other, all of them learn that the server has forgotten the
// session, or that its token has expired, whatever code that has.
func TestForgottenSessionOfManyCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		status, code int
		nameless     bool
	}{
		"404":                        {404, -32000, false},
		"400":                        {400, -32000, false},
		"400, an invalid request":    {400, -32600, false},
		"401, an invalid request":    {401, -32600, false},
		"a token, without a session": {401, -32001, true},
		"403, without a session":     {403, -32600, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := &scripted{nameless: tc.nameless}
			f.answer = func(string, string, string) fakeAnswer {
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.sessions < 2 {
					return fakeAnswer{after: time.Millisecond, status: tc.status, code: tc.code}
				}
				return fakeAnswer{after: time.Millisecond}
			}
			s, call := f.session(t)
			done := make(chan error, 200)
			for i := range cap(done) {
				go func() {
					time.Sleep(time.Duration(i/8) * 50 * time.Microsecond) // 64 may ping at once
					done <- call("many")
				}()
			}
			for range cap(done) {
				assert.NoError(t, <-done)
			}
			assert.NoError(t, s.Close())
		})
	}
}

// A call in flight is lost with its session, too, whoever has noticed the loss: a user of the session, a ping of the SDK's,
// or a mistake whose ping was refused.
func TestForgottenSessionThatIsLostMeanwhile(t *testing.T) {
	for name, lose := range map[string]func(*gosdk.Session, func(string) error){
		"reported": func(s *gosdk.Session, _ func(string) error) {
			cs, _ := s.Get(context.Background())
			s.ReportLost(cs, errBoom)
		},
		"a mistake": func(_ *gosdk.Session, call func(string) error) { _ = call("mistake") },
		"closed":    func(s *gosdk.Session, _ func(string) error) { cs, _ := s.Get(context.Background()); _ = cs.Close() },
	} {
		inBubble(t, name, func(t *testing.T) {
			f := &scripted{answer: func(session, method, tool string) fakeAnswer {
				switch {
				case tool == "mistake":
					return fakeAnswer{after: time.Millisecond, status: mistake, code: -32602}
				case session != "1":
					return fakeAnswer{after: time.Millisecond}
				case method == "ping":
					return fakeAnswer{after: time.Millisecond, status: http.StatusNotFound, code: -32600}
				}
				return fakeAnswer{after: 100 * time.Millisecond, status: http.StatusNotFound, code: -32600}
			}}
			s, call := f.session(t)
			done := make(chan error, 1)
			go func() { done <- call("late") }()
			time.Sleep(50 * time.Millisecond)
			lose(s, call)
			assert.NoError(t, <-done)
			assert.NoError(t, s.Close())
		})
	}
}

// An agent's mistake is one, also if its session was lost, for whatever reason, before the server has answered.
func TestMistakeOfALostSession(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusForbidden} {
		inBubble(t, fmt.Sprint(status), func(t *testing.T) {
			f := &scripted{answer: func(_, method, tool string) fakeAnswer {
				if tool == "mistake" {
					return fakeAnswer{after: 100 * time.Millisecond, status: status, code: -32602}
				}
				return fakeAnswer{after: time.Millisecond}
			}}
			s, call := f.session(t)
			done := make(chan error, 8)
			for range cap(done) {
				go func() {
					_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "mistake"})
					done <- err
				}()
			}
			time.Sleep(50 * time.Millisecond)
			cs, err := s.Get(t.Context())
			require.NoError(t, err)
			s.ReportLost(cs, errBoom)
			for range cap(done) {
				assert.Equal(t, resilience.ClassInvalid, resilience.Classify(<-done))
			}
			assert.NoError(t, call("fine"))
			assert.NoError(t, s.Close())
		})
	}
}
