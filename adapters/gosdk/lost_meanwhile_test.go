package gosdk_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file make one call, which the server refuses after inFlight. At halfWay something happens to its
// session.
const (
	halfWay  = 25 * time.Millisecond
	inFlight = 2 * halfWay
)

// A refusal is what the server answers to the call.
type refusal struct {
	status, code int

	own     resilience.Code // of the call's error, if the refusal is the call's own
	counted bool            // whether the breaker counts that
	ofAll   bool            // whether the server may refuse so what comes by a session that is over
}

var refusals = map[string]refusal{
	"arguments that are wrong":   {400, -32602, resilience.CodeValidation, false, false},
	"what isn't there":           {404, -32602, resilience.CodeValidation, false, true},
	"an unknown session":         {404, -32000, resilience.CodeValidation, false, true},
	"no session, by TypeScript":  {400, -32000, resilience.CodeValidation, false, true},
	"a token":                    {401, -32001, resilience.CodeValidation, false, true},
	"what a user may not do":     {403, -32001, resilience.CodeValidation, false, true},
	"a conflict":                 {409, -32000, resilience.CodeValidation, false, true},
	"a firewall's page":          {403, 0, resilience.CodeValidation, false, true},
	"what is too long":           {413, 0, resilience.CodeValidation, false, false},
	"a busy server":              {429, -32000, resilience.CodeToolFailed, true, false},
	"a server in trouble":        {500, -32603, resilience.CodeToolFailed, true, false},
	"an error of MCP, by itself": {200, -32603, resilience.CodeToolFailed, false, false},
}

// pingAnswers are those of a server that knows the session, and lets pings through.
var pingAnswers = map[string]fakeAnswer{
	"answered":   {after: time.Millisecond},
	"unknown":    {after: time.Millisecond, status: 200, code: -32601},
	"slow":       {after: 5 * time.Second},
	"hanging":    {after: time.Hour},
	"in trouble": {after: time.Millisecond, status: 500, code: -32603},
	"busy":       {after: time.Millisecond, status: 503, code: -32603},
}

// meanwhile is what happens to the session.
var meanwhile = map[string]struct {
	lost bool
	do   func(s *gosdk.Session, call func(tool string) error)
}{
	"nothing": {false, func(*gosdk.Session, func(string) error) {}},
	"a probe": {false, func(s *gosdk.Session, _ func(string) error) {
		go func() { _ = s.Probe(context.Background()) }()
	}},
	"a mistake": {false, func(_ *gosdk.Session, call func(string) error) { go func() { _ = call("mistake") }() }},
	"many mistakes": {false, func(_ *gosdk.Session, call func(string) error) {
		for range 100 {
			go func() { _ = call("mistake") }()
		}
	}},
	"a report": {true, func(s *gosdk.Session, _ func(string) error) { s.ReportLost(current(s), errBoom) }},
	"its end":  {true, func(s *gosdk.Session, _ func(string) error) { _ = current(s).Close() }},
}

func current(s *gosdk.Session) *mcp.ClientSession {
	cs, _ := s.Get(context.Background())
	return cs
}

// meet makes the call by a session with the fake, and reports what becomes of it.
func (f *scripted) meet(
	t *testing.T, effect resilience.Effect, happens func(*gosdk.Session, func(string) error),
) (err error, counted bool) {
	s, other := f.session(t)
	breaker := resilience.BreakerConfig{Failures: 1, Cooldown: 24 * time.Hour}
	g := newGuard(t, resilience.Config{Effect: effect, Breaker: breaker})
	done := make(chan error, 1)
	go func() {
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (*mcp.CallToolResult, error) {
			return s.CallTool(ctx, &mcp.CallToolParams{Name: "call"})
		}, behindAdapter)
		done <- err
	}()
	time.Sleep(halfWay)
	happens(s, other)
	err = <-done
	assert.NoError(t, other("fine"))
	assert.NoError(t, s.Close())
	return err, g.Breaker("x").State() != resilience.StateClosed
}

// Whose fault a refusal is depends neither on how the server takes pings nor on what others do. Only if the session is
// gone, a call is lost with it, if the server may refuse it for that.
func TestRefusalOfOneCall(t *testing.T) {
	for refused, r := range refusals {
		for pinged, ping := range pingAnswers {
			for happens, m := range meanwhile {
				inBubble(t, refused+", pings "+pinged+", "+happens, func(t *testing.T) {
					f := &scripted{answer: func(_, method, tool string) fakeAnswer {
						switch {
						case tool == "call":
							return fakeAnswer{after: inFlight, status: r.status, code: r.code}
						case tool == "mistake":
							return fakeAnswer{after: time.Millisecond, status: mistake, code: -32602}
						case method == "ping":
							return ping
						}
						return fakeAnswer{after: time.Millisecond}
					}}
					err, counted := f.meet(t, resilience.EffectUnknown, m.do)
					code, count := r.own, r.counted
					if m.lost && r.ofAll {
						code, count = resilience.CodeConnectionLost, true
					}
					assert.Equal(t, code, resilience.AsError("", err).Code, "%v", err)
					assert.Equal(t, count, counted)
					if !m.lost {
						assert.Equal(t, 1, f.sessions)
					}
				})
			}
		}
	}
}

// A server that has forgotten the session, or takes its token no more, refuses all that comes by it. A call that may be
// repeated succeeds by the next session, whatever others do meanwhile.
func TestRefusalOfAllCalls(t *testing.T) {
	for refused, r := range refusals {
		if !r.ofAll {
			continue
		}
		for happens, m := range meanwhile {
			inBubble(t, refused+", "+happens, func(t *testing.T) {
				begin := time.Now()
				f := &scripted{answer: func(session, method, tool string) fakeAnswer {
					forgotten := session == "1" && (tool == "call" || time.Since(begin) >= halfWay)
					switch {
					case tool == "call" && forgotten:
						return fakeAnswer{after: inFlight, status: r.status, code: r.code}
					case tool == "mistake" && !forgotten:
						return fakeAnswer{after: time.Millisecond, status: mistake, code: -32602}
					case forgotten:
						return fakeAnswer{after: time.Millisecond, status: r.status, code: r.code}
					}
					return fakeAnswer{after: time.Millisecond}
				}}
				err, _ := f.meet(t, resilience.ReadOnly, m.do)
				assert.NoError(t, err)
				assert.Equal(t, 2, f.sessions)
			})
		}
	}
}

// What a server answers to a call tells that nothing is lost, also if it lacks a result, or has words that the SDK
// has, too, and something before the server refuses pings.
func TestAnswerThatTellsOfNoLoss(t *testing.T) {
	for name, answer := range map[string]fakeAnswer{
		"no result":       {status: 200},
		"invalid request": {status: 200, code: -32600, words: "invalid request"},
		"parse error":     {status: 200, code: -32700, words: "parse error: the query isn't JSON"},
		"a mistake":       {status: 200, code: -32602},
	} {
		for pinged, ping := range map[string]fakeAnswer{
			"are answered":     {},
			"aren't found":     {status: 404},
			"have no session":  {status: 404, code: -32000},
			"are forbidden":    {status: 403},
			"aren't for users": {status: 403, code: -32001},
		} {
			for i := range 8 {
				plain, f := i&1 == 0, &scripted{mute: i&2 == 0, nameless: i&4 == 0}
				title := fmt.Sprintf("%s, pings %s, plain: %t, mute: %t, nameless: %t", name, pinged, plain, f.mute, f.nameless)
				inBubble(t, title, func(t *testing.T) {
					f.answer = func(_, method, tool string) fakeAnswer {
						switch {
						case method == "ping":
							return ping
						case tool == "call":
							return answer
						}
						return fakeAnswer{after: 500 * time.Millisecond}
					}
					testAnswerThatTellsOfNoLoss(t, f, plain)
				})
			}
		}
	}
}

func testAnswerThatTellsOfNoLoss(t *testing.T, f *scripted, plain bool) {
	g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
	s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) { return f.connect(ctx, plain) }, sessionConfig{})
	defer s.Close()
	call := callBy(t, s, g)
	for range 8 {
		other := make(chan error, 1)
		go func() { other <- call("other") }()
		time.Sleep(100 * time.Millisecond)
		requireNoLoss(t, call("call"))
		<-other
	}
	assert.Zero(t, g.Breaker("call").Failures())
	assert.NoError(t, call("other"))
	assert.LessOrEqual(t, f.sessions, 3)

	if f.mute {
		return
	}
	client, err := f.connect(t.Context(), plain, gosdk.ClientMiddleware(g))
	require.NoError(t, err)
	defer client.Close()
	for range 8 {
		_, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "call"})
		requireNoLoss(t, err)
	}
	_, err = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "other"})
	assert.NoError(t, err)
}

func requireNoLoss(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, resilience.CodeConnectionLost)
}
