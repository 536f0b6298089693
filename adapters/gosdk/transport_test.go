package gosdk_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A proxy that refuses one request with a page of its own ends neither the session nor a call in flight.
func TestTransportKeepsTheSessionOfOthers(t *testing.T) {
	for _, protocol := range []string{latest, legacy} {
		for status, says := range map[int]string{
			400: "400 Bad Request", 401: "401 Unauthorized", 403: "403 Forbidden", 413: "413 Request Entity Too Large",
			422: "422 Unprocessable Entity", 501: "501 Not Implemented", 500: "", 503: "",
		} {
			t.Run(fmt.Sprint(status, ", ", protocol), func(t *testing.T) {
				p := newPeer()
				finish := make(chan struct{})
				p.addSlow(finish)
				h := serveHTTPWith(t, p.server, &mcp.StreamableHTTPOptions{Stateless: protocol == latest})
				s := newSession(t, dialHTTP(h, gosdk.Transport(nil), protocol, false), sessionConfig{})
				first := up(t, s)
				slow := make(chan error, 1)
				go func() {
					_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow"})
					slow <- err
				}()
				receive(t, p.started)

				h.refuse(refusal{status, "<html>%s"}, `"echo"`)
				g := newGuard(t, resilience.Config{Retry: resilience.Retry{MaxRetries: -1}})
				var e *resilience.Error
				require.ErrorAs(t, guarded(t, g, s, "echo", behindAdapter), &e)
				assert.Equal(t, resilience.CodeToolFailed, e.Code, "%v", e.Err)
				if says != "" {
					assert.Equal(t, "The server refused the request: "+says, e.Message)
				}
				assert.Equal(t, status == 500 || status == 503, g.Breaker("echo").Failures() == 1)

				close(finish)
				require.NoError(t, receive(t, slow))
				assert.Same(t, first, up(t, s))
			})
		}
	}
}

// An answer of MCP, and one that ends the session, stays as it is. The refusal of a login must remain an answer.
func TestTransportOfOneAnswer(t *testing.T) {
	const page, ofMCP = "<html>no</html>", `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}`
	for name, tc := range map[string]struct {
		method  string
		session string
		status  int
		body    string
		want    string // the body; empty: an error
	}{
		"a success":                   {"POST", "1", 200, page, page},
		"an error of MCP":             {"POST", "1", 400, ofMCP, ofMCP},
		"an error of MCP, by 403":     {"POST", "1", 403, ofMCP, ofMCP},
		"an error of MCP without ID":  {"POST", "1", 400, strings.Replace(ofMCP, "7", "null", 1), ""},
		"a result":                    {"POST", "1", 400, `{"jsonrpc":"2.0","id":7,"result":{}}`, ""},
		"no such session":             {"POST", "1", 404, page, page},
		"no such page, of no session": {"POST", "", 404, page, ""},
		"a page":                      {"POST", "1", 413, page, ""},
		"a long page":                 {"POST", "1", 413, strings.Repeat(page, 1<<17), ""},
		"nothing":                     {"POST", "1", 413, "", ""},
		"a busy server":               {"POST", "1", 503, page, ""},
		"a busy server, of MCP":       {"POST", "1", 503, ofMCP, ""},
		"a stream":                    {"GET", "1", 405, page, page},
		"a token":                     {"POST", "", 400, page, page},
		"a login": {"POST", "1", 401, page,
			`{"jsonrpc":"2.0","id":"refused","error":{"code":-32000,"message":"refused"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer h.Close()
			client := &http.Client{Transport: gosdk.Transport(nil)}
			defer client.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), tc.method, h.URL, strings.NewReader(`{}`))
			require.NoError(t, err)
			req.Header.Set("Mcp-Session-Id", tc.session)
			if name != "a token" { // a login may share the client
				req.Header.Set("Accept", "application/json, text/event-stream")
			}

			res, err := client.Do(req)
			if tc.want == "" {
				assert.ErrorContains(t, err, fmt.Sprintf("status %d", tc.status))
				var asked interface{ StatusCode() int }
				require.ErrorAs(t, err, &asked)
				assert.Equal(t, tc.status, asked.StatusCode())
				return
			}
			require.NoError(t, err)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			assert.Equal(t, tc.want, string(body))
			assert.Equal(t, tc.status, res.StatusCode)
			assert.Equal(t, "Bearer", res.Header.Get("WWW-Authenticate"))
		})
	}
}
