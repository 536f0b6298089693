package main

import (
	"io"
	"log/slog"
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

func get(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	res, err := client.Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
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
		const url = "http://localhost"
		client := &http.Client{Transport: direct{handler}}

		status, body := get(t, client, url+"/healthz")
		assert.Equal(t, http.StatusOK, status)
		assert.JSONEq(t, `{"status":"ok"}`, body)
		_, body = get(t, client, url+"/console/api/health")
		assert.Contains(t, body, `"tool":"search"`, "before its first call")

		callTool := connect(t, &mcp.StreamableClientTransport{
			Endpoint: url + "/mcp", HTTPClient: client, DisableStandaloneSSE: true,
		})
		call := func(tool string, args map[string]any) {
			t.Helper()
			_, err := callTool(tool, args, nil)
			require.NoError(t, err)
		}
		call("overview", map[string]any{})
		call("overview", map[string]any{})
		for range 2 { // the first opens the breaker
			call("fetch", map[string]any{"url": servertest.Refused + "/"})
		}
		require.NoError(t, guard.Flush(t.Context()))

		status, body = get(t, client, url+"/metrics")
		assert.Equal(t, http.StatusOK, status)
		const calls = `mcp_server_operation_duration_seconds_count`
		const failedFetches = calls + `\{error_type="tool_error",[^}]*gen_ai_tool_name="fetch",[^}]*`
		for _, want := range []string{
			calls + `\{[^}]*gen_ai_tool_name="overview"[^}]*\} 2\n`,
			failedFetches + `resilience_code="RETRY_EXHAUSTED"[^}]*\} 1\n`,
			failedFetches + `resilience_code="CIRCUIT_OPEN"[^}]*\} 1\n`,
			`resilience_breaker_state\{[^}]*resilience_breaker_name="backend",resilience_breaker_state="open"\} 1\n`,
			`resilience_breaker_state\{[^}]*resilience_breaker_name="search",resilience_breaker_state="closed"\} 1\n`,
			`resilience_calls_in_flight\{gen_ai_tool_name="overview"[^}]*\} 0\n`,
		} {
			assert.Regexp(t, want, body)
		}

		status, body = get(t, client, url+"/healthz")
		assert.Equal(t, http.StatusOK, status, "the other tools work")
		assert.JSONEq(t, `{"status":"degraded"}`, body)
		time.Sleep(time.Second) // the console's answers are shared for half of that
		_, body = get(t, client, url+"/console/api/health")
		assert.Contains(t, body, `"tool":"fetch","listed":true,"available":false,"breaker":"backend","state":"open"`)
		status, body = get(t, client, url+"/console/")
		assert.Equal(t, http.StatusOK, status)
		assert.Contains(t, body, "<!doctype html>")

		assert.Equal(t, http.StatusForbidden, reset(t, client, url, "guess"))
		assert.Equal(t, http.StatusOK, reset(t, client, url, "swordfish"))
		assert.Equal(t, resilience.StateClosed, guard.Breaker("fetch").State())
	})
}

// reset resets the breaker of the backend.
func reset(t *testing.T, client *http.Client, url, token string) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/console/api/breakers/backend/reset", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

func TestWithoutATokenNothingIsAuthorized(t *testing.T) {
	assert.Nil(t, authorize(""), "there are no routes that change breakers then")
}

func TestServeHTTPRejectsABadAddress(t *testing.T) {
	err := serveHTTP(t.Context(), slog.New(slog.DiscardHandler), resilience.Config{}, "127.0.0.1:-1",
		func(*resilience.Guard) *mcp.Server { return nil })
	assert.Error(t, err)
}
