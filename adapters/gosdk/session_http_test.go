package gosdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// soon is within what the next use of a broken session must work. It takes a second, if nothing else keeps the machine
// busy.
const soon = 30 * time.Second

// standard is net/http's transport, which a test replaces for a moment.
var standard = http.DefaultTransport

// dialHTTP returns a dial of the server through the base transport, by default the standard one.
func dialHTTP(
	h *httpServer, base http.RoundTripper, protocol string, stream bool,
) func(context.Context) (*mcp.ClientSession, error) {
	if base == nil {
		base = standard
	}
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: h.URL, HTTPClient: &http.Client{Transport: base}, DisableStandaloneSSE: !stream,
		}, speaking(protocol))
	}
}

// A transports is what a client's HTTP goes through.
var transports = map[string]func() http.RoundTripper{
	"plain":     func() http.RoundTripper { return &http.Transport{DisableKeepAlives: true} },
	"Transport": func() http.RoundTripper { return gosdk.Transport(&http.Transport{DisableKeepAlives: true}) },
}

// A refusal is how a server answers a request.
type refusal struct {
	status int
	body   string // %s is the request's ID
}

func (a refusal) write(w http.ResponseWriter, r *http.Request) {
	var request struct{ ID json.RawMessage }
	_ = json.Unmarshal(bodyOf(r), &request)
	if request.ID == nil {
		request.ID = json.RawMessage("null")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	if a.body != "" {
		_, _ = fmt.Fprintf(w, a.body, request.ID)
	}
}

const (
	ofTypeScript = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"No valid session ID"},"id":null,"to":%s}`
	ofPython     = `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"},"to":%s}`
	ofResult     = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no structured content was provided"}}`
	ofRequest    = `{"jsonrpc":"2.0","id":%%s,"error":{"code":%d,"message":"no such session"}}`
)

// forget makes the server answer the requests of a session so.
func (h *httpServer) forget(session string, answer refusal) {
	intercept := func(w http.ResponseWriter, r *http.Request) bool {
		isOld := r.Header.Get("Mcp-Session-Id") == session
		if isOld {
			answer.write(w, r)
		}
		return isOld
	}
	h.intercept.Store(&intercept)
}

// A server that is deployed anew doesn't know the session of its client, and answers that in many ways.
func TestSessionOfAServerThatIsDeployedAnew(t *testing.T) {
	for name, answer := range map[string]refusal{
		"404":                {404, "session not found, %s"},
		"404, Python":        {404, ofPython},
		"404, TypeScript":    {404, ofTypeScript},
		"400":                {400, "no session, %s"},
		"400, TypeScript":    {400, ofTypeScript},
		"400, with an ID":    {400, fmt.Sprintf(ofRequest, -32600)},
		"400, invalid":       {400, fmt.Sprintf(ofRequest, -32602)},
		"401":                {401, "%s"},
		"403":                {403, "%s"},
		"410":                {410, "%s"},
		"422":                {422, "%s"},
		"429":                {429, "%s"},
		"500":                {500, "%s"},
		"503":                {503, "%s"},
		"200, invalid":       {200, fmt.Sprintf(ofRequest, -32600)},
		"200, rejected":      {200, fmt.Sprintf(ofRequest, -32005)},
		"200, internal":      {200, fmt.Sprintf(ofRequest, -32603)},
		"200, garbled":       {200, `{"jsonrpc":"2.0","id":%s,`},
		"200, a login page":  {200, "<html>%s"},
		"200, without words": {200, ""},
	} {
		for _, stream := range []bool{true, false} {
			for with, base := range transports {
				t.Run(fmt.Sprintf("%s, %s, stream %t", name, with, stream), func(t *testing.T) {
					t.Parallel()
					h := serveHTTP(t, newPeer().server)
					s := newSession(t, dialHTTP(h, base(), legacy, stream), sessionConfig{CheckTimeout: time.Second})
					old := up(t, s).ID()
					require.NotEmpty(t, old)
					h.forget(old, answer)
					h.CloseClientConnections() // the stream ends with the old process

					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := echo(ctx, s)
					require.Error(t, err)
					works := func() bool { _, err := echo(t.Context(), s); return err == nil }
					require.Eventually(t, works, soon, 10*time.Millisecond)
					assert.NotEqual(t, old, up(t, s).ID())
				})
			}
		}
	}
}

// refuse makes the server answer all requests so, or those that contain the text.
func (h *httpServer) refuse(answer refusal, text string) {
	intercept := func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodPost && bytes.Contains(bodyOf(r), []byte(text))
		if refused {
			answer.write(w, r)
		}
		return refused
	}
	h.intercept.Store(&intercept)
}

// What a server, or a proxy, answers to one call tells nothing about the session, which answers pings.
func TestRefusalOfOneCallKeepsTheSession(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  refusal
		code    resilience.Code // for the agent
		counted int             // each time
	}{
		"its arguments":       {refusal{200, fmt.Sprintf(ofRequest, -32602)}, resilience.CodeValidation, 0},
		"by status 400":       {refusal{400, fmt.Sprintf(ofRequest, -32602)}, resilience.CodeValidation, 0},
		"no such method":      {refusal{200, fmt.Sprintf(ofRequest, -32601)}, resilience.CodeValidation, 0},
		"the tool's result":   {refusal{200, ofResult}, resilience.CodeToolFailed, 0},
		"an internal error":   {refusal{200, fmt.Sprintf(ofRequest, -32603)}, resilience.CodeToolFailed, 0},
		"an error of its own": {refusal{200, fmt.Sprintf(ofRequest, -32005)}, resilience.CodeToolFailed, 0},
		"a firewall":          {refusal{403, fmt.Sprintf(ofRequest, -32000)}, resilience.CodeToolFailed, 0},
		"a limit":             {refusal{413, fmt.Sprintf(ofRequest, -32000)}, resilience.CodeToolFailed, 0},
		"busy":                {refusal{429, "%s"}, resilience.CodeRateLimited, 0},
		"in trouble":          {refusal{500, "%s"}, resilience.CodeToolFailed, 1},
		"down":                {refusal{503, "%s"}, resilience.CodeToolFailed, 1},
	} {
		for with, base := range transports {
			t.Run(name+", "+with, func(t *testing.T) {
				h := serveHTTP(t, newPeer().server)
				s := newSession(t, dialHTTP(h, base(), legacy, true), sessionConfig{})
				first := up(t, s)
				g := newGuard(t, resilience.Config{Effect: resilience.NonIdempotent})
				h.refuse(tc.answer, `"echo"`)
				for n := range 3 {
					err := guarded(t, g, s, "echo", behindAdapter)
					assert.Equal(t, tc.code, resilience.AsError("", err).Code, "%v", err)
					assert.Equal(t, tc.counted*(n+1), g.Breaker("echo").Failures())
				}

				require.NoError(t, s.Probe(t.Context()))
				h.intercept.Store(nil)
				_, err := echo(t.Context(), s)
				require.NoError(t, err)
				assert.Same(t, first, up(t, s))
			})
		}
	}
}

// What a proxy does to one call must not cost the others their session.
func TestRequestThatIsCutOffKeepsTheSession(t *testing.T) {
	for name, cut := range map[string]func(http.ResponseWriter){
		"before the answer": func(http.ResponseWriter) {},
		"within the answer": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := serveHTTP(t, newPeer().server)
			s := newSession(t, dialHTTP(h, nil, legacy, false), sessionConfig{})
			first := up(t, s)
			cutOnce := func(w http.ResponseWriter, _ *http.Request) bool {
				h.intercept.Store(nil)
				cut(w)
				panic(http.ErrAbortHandler)
			}
			h.intercept.Store(&cutOnce)
			_, err := echo(t.Context(), s)
			assert.Equal(t, resilience.CodeConnectionLost, resilience.AsError("", err).Code)
			_, err = echo(t.Context(), s)
			require.NoError(t, err)
			assert.Same(t, first, up(t, s))
		})
	}
}

// A server without sessions knows no pings, and its answer to one is that of a server that works.
func TestServerWithoutSessionsIsAsked(t *testing.T) {
	h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: true})
	s := newSession(t, dialHTTP(h, nil, latest, false), sessionConfig{})
	first := up(t, s)
	require.Equal(t, latest, first.InitializeResult().ProtocolVersion)
	require.NoError(t, s.Probe(t.Context()))
	h.refuse(refusal{500, "%s"}, `"echo"`)
	_, err := echo(t.Context(), s)
	require.Error(t, err)
	h.intercept.Store(nil)
	_, err = echo(t.Context(), s)
	require.NoError(t, err)
	assert.Same(t, first, up(t, s))
}

const inTheBubble = "Sat, 01 Jan 2000 00:00:50 GMT" // 50s after its beginning

// The agent reads why a server refuses the session, and the next dial waits for as long as the server asks.
func TestDialThatIsRefusedSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		status     int
		retryAfter string
		plain      bool
		says       string
		wait       time.Duration
	}{
		"401":                    {401, "", false, "the login is refused", time.Second},
		"401, plain":             {401, "", true, "the login is refused", time.Second},
		"403":                    {403, "", false, "the login is refused", time.Second},
		"403, plain":             {403, "", true, "the login is refused", time.Second},
		"429":                    {429, "40", false, "the server is too busy", 40 * time.Second},
		"429, plain":             {429, "40", true, "the server is too busy", time.Second},
		"503":                    {503, "40", false, "the server is too busy", 40 * time.Second},
		"503, by the clock":      {503, inTheBubble, false, "the server is too busy", 50 * time.Second},
		"503, without a time":    {503, "", false, "the server is too busy", time.Second},
		"503, with a wrong time": {503, "soon", false, "the server is too busy", time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			var transport http.RoundTripper = roundTripper(func(r *http.Request) (*http.Response, error) {
				header := http.Header{"Retry-After": {tc.retryAfter}}
				return &http.Response{StatusCode: tc.status, Header: header, Body: http.NoBody, Request: r}, nil
			})
			if !tc.plain {
				transport = gosdk.Transport(transport)
			}
			var dials []time.Duration
			start := time.Now()
			s := gosdk.NewSession(func(ctx context.Context) (*mcp.ClientSession, error) {
				dials = append(dials, time.Since(start))
				return newClient(nil).Connect(ctx, &mcp.StreamableClientTransport{
					Endpoint: "http://other/", HTTPClient: &http.Client{Transport: transport},
				}, nil)
			}, sessionConfig{Backoff: steady(time.Second)})
			time.Sleep(time.Nanosecond)
			_, err := echo(t.Context(), s)
			e := requireLost(t, err)
			assert.Equal(t, "Connection lost: "+tc.says, e.Message)
			assert.Equal(t, tc.wait-1, e.RetryAfter)

			time.Sleep(tc.wait)
			require.NoError(t, s.Close())
			synctest.Wait()
			assert.Equal(t, []time.Duration{0, tc.wait}, dials)
		})
	}
}

// A token that has expired is replaced by a dial, for each request and each ping.
func TestSessionWhoseTokenExpires(t *testing.T) {
	for _, protocol := range []string{legacy, latest} {
		for with, base := range transports {
			t.Run(protocol+", "+with, func(t *testing.T) {
				h := serveHTTPWith(t, newPeer().server, &mcp.StreamableHTTPOptions{Stateless: protocol == latest})
				var dials, valid atomic.Int64
				valid.Store(1)
				refuses := func(w http.ResponseWriter, r *http.Request) bool {
					expired := r.Header.Get("Authorization") != fmt.Sprint(valid.Load())
					if expired {
						http.Error(w, "invalid_token", http.StatusUnauthorized)
					}
					return expired
				}
				h.intercept.Store(&refuses)
				s := newSession(t, func(ctx context.Context) (*mcp.ClientSession, error) {
					token, through := fmt.Sprint(dials.Add(1)), base()
					return dialHTTP(h, roundTripper(func(r *http.Request) (*http.Response, error) {
						r = r.Clone(r.Context())
						r.Header.Set("Authorization", token)
						return through.RoundTrip(r)
					}), protocol, false)(ctx)
				}, sessionConfig{})

				for range 2 {
					valid.Add(1)
					_, err := echo(t.Context(), s)
					require.Error(t, err)
					works := func() bool { _, err := echo(t.Context(), s); return err == nil }
					require.Eventually(t, works, soon, 10*time.Millisecond)
				}
				assert.EqualValues(t, 3, dials.Load())
			})
		}
	}
}
