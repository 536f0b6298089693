package backends

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a failure may be.
const (
	counted = "a failure of the backend"
	mistake = "a mistake"
	limited = "a rate limit"
	own     = "the tool's own"
)

// judge calls a tool, as behind an adapter for MCP, that does what it does and then fails in words which
// tell nothing. It returns whose fault that was.
func judge(t *testing.T, does func(context.Context)) string {
	return judgeError(t, func(ctx context.Context) error {
		does(ctx)
		return errors.New("it didn't work")
	})
}

// judgeError is judge for a tool that fails in words of its own.
func judgeError(t *testing.T, fails func(context.Context) error) string {
	guard := resilience.Must(resilience.New(resilience.Config{Retry: resilience.Retry{MaxRetries: -1}}))
	r := resilience.Run(t.Context(), guard, "tool", func(ctx context.Context) (string, error) {
		return "", fails(ctx)
	}, resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral}))

	require.Error(t, r.Err)
	switch {
	case guard.Health()[0].ConsecutiveFailures == 1:
		return counted
	case r.Err.Code == resilience.CodeValidation:
		return mistake
	case r.Err.Code == resilience.CodeRateLimited:
		return limited
	}
	return own
}

// backend starts an HTTP server that gives one answer to everything.
func backend(t *testing.T, status int, header http.Header, body string) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return srv
}

// refusing returns an address where connections are refused.
func refusing(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

func TestHTTP(t *testing.T) {
	get := func(url string) func(context.Context) {
		return func(ctx context.Context) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			assert.NoError(t, err)
			if res, err := HTTPClient().Do(req); err == nil {
				res.Body.Close()
			}
		}
	}
	assert.Equal(t, own, judge(t, get(backend(t, 200, nil, "").URL)))
	assert.Equal(t, mistake, judge(t, get(backend(t, 404, nil, "").URL)))
	assert.Equal(t, counted, judge(t, get(backend(t, 503, nil, "").URL)))
	assert.Equal(t, counted, judge(t, get("http://"+refusing(t))))
}
