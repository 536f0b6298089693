package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/seed8d1e2389/resilience/examples/servertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A direct client calls the handler, without a network, whatever the address.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = r.URL.Host
	if r.Body == nil {
		r.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	d.handler.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

// ask returns what the handler answers to a request that carries a token.
func ask(handler http.Handler, method, path, token string) (status int, body string) {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder.Code, recorder.Body.String()
}

// In real time, an observer might miss the start of a call on a busy machine.
func TestMetricsAndHealthShowCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, fetcher := servertest.Workspace(t)
		cfg := resilience.Config{Tools: tools, Breaker: resilience.BreakerConfig{Failures: 1}}
		page, err := console.New(console.Config{Authorize: authorize("swordfish")})
		require.NoError(t, err)
		handler, guard, err := newHandler(cfg, page, func(g *resilience.Guard) *mcp.Server {
			return newServer(g, dir, fetcher)
		})
		require.NoError(t, err)
		get := func(path string) (status int, body string) { return ask(handler, http.MethodGet, path, "") }

		status, body := get("/healthz")
		assert.Equal(t, http.StatusOK, status)
		assert.JSONEq(t, `{"status":"ok"}`, body)
		_, body = get("/console/api/health")
		assert.Contains(t, body, `"tool":"search"`, "before its first call")

		callTool := connect(t, &mcp.StreamableClientTransport{
			Endpoint:   "http://localhost/mcp",
			HTTPClient: &http.Client{Transport: direct{handler}}, DisableStandaloneSSE: true,
		})
		call := func(tool string, args map[string]any) {
			_, err := callTool(tool, args, nil)
			require.NoError(t, err)
		}
		for range 2 { // the first fetch opens the breaker
			call("search", map[string]any{"text": "x"})
			call("fetch", map[string]any{"url": servertest.Refused + "/"})
		}
		require.NoError(t, guard.Flush(t.Context()))

		_, body = get("/metrics")
		const calls = `mcp_server_operation_duration_seconds_count`
		const failedFetches = calls + `\{error_type="tool_error",[^}]*gen_ai_tool_name="fetch",[^}]*`
		for _, want := range []string{
			calls + `\{[^}]*gen_ai_tool_name="search"[^}]*\} 2\n`,
			failedFetches + `resilience_code="RETRY_EXHAUSTED"[^}]*\} 1\n`,
			failedFetches + `resilience_code="CIRCUIT_OPEN"[^}]*\} 1\n`,
			`resilience_breaker_state\{[^}]*resilience_breaker_name="backend",resilience_breaker_state="open"\} 1\n`,
			`resilience_breaker_state\{[^}]*resilience_breaker_name="search",resilience_breaker_state="closed"\} 1\n`,
			`resilience_calls_in_flight\{gen_ai_tool_name="search"[^}]*\} 0\n`,
		} {
			assert.Regexp(t, want, body)
		}

		status, body = get("/healthz")
		assert.Equal(t, http.StatusOK, status, "the other tools work")
		assert.JSONEq(t, `{"status":"degraded"}`, body)
		time.Sleep(time.Second) // the console's answers are shared for half of that
		_, body = get("/console/api/health")
		assert.Contains(t, body, `"tool":"fetch","listed":true,"available":false,"breaker":"backend","state":"open"`)
		_, body = get("/console/")
		assert.Contains(t, body, "<!doctype html>")

		for token, want := range map[string]int{"guess": http.StatusForbidden, "swordfish": http.StatusOK} {
			status, _ = ask(handler, http.MethodPost, "/console/api/breakers/backend/reset", token)
			assert.Equal(t, want, status, token)
		}
		assert.Equal(t, resilience.StateClosed, guard.Breaker("fetch").State())
		assert.Nil(t, authorize(""), "without a token, there are no routes that change breakers")
	})
}
