package resilience_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of docs/errors.md has the ends of texts; this has the text itself.
func TestResultErrorRepeatsTheText(t *testing.T) {
	long := "x" + strings.Repeat("ä", 600)
	for text, want := range map[string]string{
		"":                                     "the tool returned a result with isError",
		"no luck":                              "no luck",
		strings.Repeat("x", 1024):              strings.Repeat("x", 1024),
		long:                                   "x" + strings.Repeat("ä", 511) + "…",
		long + ": connect: connection refused": "x" + strings.Repeat("ä", 511) + "…",
	} {
		err := resilience.ResultError(text)
		assert.EqualError(t, err, want)
		assert.Equal(t, strings.HasSuffix(text, "refused"), errors.Is(err, syscall.ECONNREFUSED))
	}
}

// What net/http returns is recognized by its text: this test fails if its words change.
func TestResultErrorRecognizesNetHTTP(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case "/eof":
			panic(http.ErrAbortHandler)
		}
	}))
	defer srv.Close()
	defer close(release)
	refusing := httptest.NewServer(nil)
	refusing.Close()

	slow := &http.Client{Timeout: 10 * time.Millisecond}
	noHeaders := &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 10 * time.Millisecond}}
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	seen := make(map[string]error)
	for name, get := range map[string]func() (*http.Response, error){
		"refused":          func() (*http.Response, error) { return http.Get(refusing.URL) },
		"EOF":              func() (*http.Response, error) { return http.Post(srv.URL+"/eof", "", nil) },
		"client's timeout": func() (*http.Response, error) { return slow.Get(srv.URL + "/hang") },
		"no headers":       func() (*http.Response, error) { return noHeaders.Get(srv.URL + "/hang") },
		"deadline": func() (*http.Response, error) {
			req, err := http.NewRequestWithContext(ended, http.MethodGet, srv.URL, nil)
			require.NoError(t, err)
			return http.DefaultClient.Do(req)
		},
	} {
		_, seen[name] = get()
	}
	for name, err := range seen {
		runInBubble(t, name, func(t *testing.T) {
			require.Error(t, err)
			got := faultOf(t, resilience.ResultError("request failed: "+err.Error()), resilience.ClassNeutral)
			assert.Equal(t, faultOf(t, err, resilience.ClassNeutral), got, err)
			assert.True(t, got.counted)
		})
	}
}

// Ten failures of which nothing is known mean that the breaker will never see an outage.
func TestFailuresThatNothingExplainsAreSaidOnce(t *testing.T) {
	unknown := errors.New("no luck")
	for name, tc := range map[string]struct {
		err      error
		report   bool
		plain    bool // without an adapter
		classify bool
		warned   bool
	}{
		"nothing is known":      {err: unknown, warned: true},
		"a text":                {err: resilience.ResultError("no luck"), warned: true},
		"the backend reports":   {err: unknown, report: true},
		"not behind an adapter": {err: unknown, plain: true},
		"Config.Classify":       {err: unknown, classify: true},
		"by its type":           {err: syscall.ECONNRESET},
		"the caller's":          {err: resilience.MarkInvalid(unknown)},
		"marked":                {err: resilience.MarkNeutral(unknown)},
		"canceled":              {err: context.Canceled},
	} {
		runInBubble(t, name, func(t *testing.T) {
			log, out := textLog(0)
			cfg := resilience.Config{Log: log, Breaker: resilience.BreakerConfig{Failures: 100}}
			if tc.classify {
				cfg.Classify = resilience.Classify
			}
			g := newGuard(t, cfg)
			request := resilience.Request{Unexplained: resilience.ClassNeutral}
			if tc.plain {
				request.Unexplained = resilience.ClassTransient
			}
			calls := 0
			fail := func(times int) string {
				for range times {
					_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
						if calls++; tc.report && calls == 9 { // one report is enough
							resilience.ReportBackend(ctx, nil)
						}
						return 0, tc.err
					}, resilience.ForRequest(request))
				}
				flush(t, g)
				return out.String()
			}

			assert.Empty(t, fail(9))
			got := fail(20)
			assert.Equal(t, tc.warned, strings.Contains(got, "see resilience.Transport"), got)
			if tc.warned {
				assert.Equal(t, 1, strings.Count(got, "\n"))
				assert.Contains(t, got, "tool=x")
			}
		})
	}
}
