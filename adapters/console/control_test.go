package console_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const isolateX = "/api/breakers/x/isolate"

func TestWithoutAuthorizeBreakersCannotBeChanged(t *testing.T) {
	f := newFixture(t, tools("x"), console.Config{})
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodPut} {
		assert.Equal(t, http.StatusNotFound, f.do(method, isolateX, "").Code, method)
		assert.Equal(t, http.StatusNotFound, f.do(method, "/api/breakers/x/reset", "").Code, method)
	}
	assert.Equal(t, resilience.StateClosed, f.guard.Breaker("x").State())
	assert.Contains(t, f.do(http.MethodGet, "/api/health", "").Body.String(), `"control":false`)
}

func TestIsolateAndReset(t *testing.T) {
	f := newFixture(t, tools("x"), console.Config{Authorize: allow})
	w := f.do(http.MethodPost, isolateX, `{"reason": "maintenance <until> 14:00"}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var b breaker
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &b))
	assert.Equal(t, "isolated", b.State, "the answer is the breaker as it is now")
	assert.Equal(t, "maintenance <until> 14:00", b.Reason)
	reason, isolated := f.guard.Breaker("x").Isolated()
	assert.True(t, isolated)
	assert.Equal(t, "maintenance <until> 14:00", reason)

	w = f.do(http.MethodPost, "/api/breakers/x/reset", "")
	require.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), `"state":"closed"`)
	assert.Equal(t, resilience.StateClosed, f.guard.Breaker("x").State())
}

func TestWhoMayChangeBreakers(t *testing.T) {
	for _, tc := range []struct {
		name      string
		authorize func(*http.Request) bool
		header    []string
		want      int
	}{
		{name: "allowed", authorize: allow, want: 200},
		{name: "not allowed", authorize: func(*http.Request) bool { return false }, want: 403},
		{name: "same site", authorize: allow, header: []string{"Sec-Fetch-Site", "same-origin"}, want: 200},
		{name: "another site", authorize: allow, header: []string{"Sec-Fetch-Site", "cross-site"}, want: 403},
		{name: "another subdomain", authorize: allow, header: []string{"Sec-Fetch-Site", "same-site"}, want: 403},
		{name: "the same origin", authorize: allow, header: []string{"Origin", "http://example.com"}, want: 200},
		{name: "another origin", authorize: allow, header: []string{"Origin", "https://evil.example"}, want: 403},
		{name: "a sandbox", authorize: allow, header: []string{"Origin", "null"}, want: 403},
		{
			name: "with the token", header: []string{"Authorization", "Bearer s"}, want: 200,
			authorize: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer s" },
		},
		{name: "a panic", authorize: func(*http.Request) bool { panic("oops") }, want: 500},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			f := newFixture(t, tools("x"), console.Config{
				Authorize: tc.authorize, Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			w := f.do(http.MethodPost, isolateX, "", tc.header...)
			assert.Equal(t, tc.want, w.Code, w.Body)
			assert.Equal(t, tc.want == 200, f.guard.Breaker("x").State() == resilience.StateIsolated)
			assert.Equal(t, tc.want == 500, strings.Contains(log.String(), "oops"))
			assert.NotContains(t, w.Body.String(), "oops")

			if tc.want == 403 {
				missing := f.do(http.MethodPost, "/api/breakers/missing/isolate", "", tc.header...)
				assert.Equal(t, http.StatusForbidden, missing.Code, "it mustn't tell which breakers there are")
			}
		})
	}
}

func TestAPanicIsOneRequests(t *testing.T) {
	f := newFixture(t, tools("x"), console.Config{
		Healthy: func([]resilience.Health) bool { panic("oops") }, Log: slog.New(slog.DiscardHandler),
	})
	assert.Equal(t, http.StatusInternalServerError, f.do(http.MethodGet, "/healthz", "").Code)
	assert.Equal(t, http.StatusOK, f.do(http.MethodGet, "/api/health", "").Code)
}

func TestBodiesAreChecked(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	long := strings.Repeat("é", 501)
	largest := strings.Repeat(" ", 8<<10-len(`{"reason":"r"}`)) + `{"reason":"r"}`
	for _, tc := range []struct {
		name, kind, body string
		want             int
		reason           string
	}{
		{name: "JSON", kind: "application/json; charset=utf-8", body: `{"reason":"r"}`, want: 200, reason: "r"},
		{name: "no type", body: `{"reason":"r"}`, want: 200, reason: "r"},
		{name: "a form", kind: form, body: "reason=a+b%21", want: 200, reason: "a b!"},
		{name: "nothing", kind: "application/json", want: 200},
		{name: "the longest", body: `{"reason":"` + long[2:] + `"}`, want: 200, reason: long[2:]},
		{name: "too long", body: `{"reason":"` + long + `"}`, want: 400},
		{name: "the largest", body: largest, want: 200, reason: "r"},
		{name: "larger", body: " " + largest, want: 413},
		{name: "too large", body: `{"reason":"` + strings.Repeat("x", 9000) + `"}`, want: 413},
		{name: "too large a form", kind: form, body: "reason=" + strings.Repeat("x", 9000), want: 413},
		{name: "another type", kind: "text/plain", body: `{"reason":"r"}`, want: 200, reason: "r"},
		{name: "not JSON", body: "reason", want: 400},
		{name: "another kind of value", body: `{"reason":7}`, want: 400},
		{name: "a bad form", kind: form, body: "reason=%zz", want: 400},
		{name: "not UTF-8", kind: form, body: "reason=a%ff", want: 200, reason: "a\uFFFD"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, tools("x"), console.Config{Authorize: allow})
			w := f.do(http.MethodPost, isolateX, tc.body, "Content-Type", tc.kind)
			assert.Equal(t, tc.want, w.Code, w.Body)
			reason, isolated := f.guard.Breaker("x").Isolated()
			assert.Equal(t, tc.want == 200, isolated)
			assert.Equal(t, tc.reason, reason)
		})
	}
}

var oddNames = []string{
	"a/b", "/", "//", "a//b", "..", ".", "...", "../..", "a/../b", "~", "~..", "~~", " ", "a b", "%", "%2F", "%2e%2e",
	"?", "#", "a?b#c", "&amp;", "<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "ünï/ço∂é", "日本", "\n",
	"\x00", "a\xffb", "\u202e", "isolate", "x/isolate", ";", "+", "\\", `C:\x`,
}

func FuzzNames(f *testing.F) {
	for _, name := range oddNames {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || name == "bystander" || name == "(others)" || len(name) > 256 {
			t.Skip("no breaker is called that")
		}
		f := newFixture(t, tools("bystander"), console.Config{Authorize: allow})
		b := f.guard.Breaker(name)
		w := f.do(http.MethodPost, "/api/breakers/isolate?name="+url.QueryEscape(name), "")
		require.Equal(t, http.StatusOK, w.Code, "%q: %s", name, w.Body)
		assert.Equal(t, resilience.StateIsolated, b.State())
		assert.Equal(t, resilience.StateClosed, f.guard.Breaker("bystander").State())

		var shown breaker
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &shown))
		if !utf8.ValidString(name) {
			return
		}
		assert.Equal(t, name, shown.Breaker)
		again := f.do(http.MethodPost, "/api/breakers/reset?name="+url.QueryEscape(shown.Breaker), "")
		require.Equal(t, http.StatusOK, again.Code, "by the name that the page shows")
		assert.Equal(t, resilience.StateClosed, b.State())
		assert.NotContains(t, w.Body.String(), "<", "JSON that is put into HTML by mistake does no harm")
	})
}

// Proxies change paths, and an agent may have chosen the key.
func TestNameInTheQueryChangesNoOtherBreaker(t *testing.T) {
	f := newFixture(t, tools("search", "db"), console.Config{Authorize: allow})
	f.call("search", 1, 0, nil, resilience.BreakerKey("../db"))
	w := f.do(http.MethodPost, "/api/breakers/isolate?name=search%2F..%2Fdb", "")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), `"breaker":"search/../db"`)
	assert.Equal(t, resilience.StateClosed, f.guard.Breaker("db").State())

	for _, query := range []string{"", "?name=", "?Name=db", "?name=%zz"} {
		w := f.do(http.MethodPost, "/api/breakers/isolate"+query, "")
		assert.Equal(t, http.StatusBadRequest, w.Code)
		assert.Contains(t, w.Body.String(), "there is no name in the query: it must be the breaker's, as in ?name=db")
	}
}

func TestABreakerThatDoesNotExist(t *testing.T) {
	for name, tc := range map[string]struct {
		breakers int
		want     string // after the name
	}{
		"none":   {0, "there are none yet"},
		"one":    {1, `there are "t00"`},
		"ten":    {10, `there are "t00", "t01", "t02", "t03", "t04", "t05", "t06", "t07", "t08", "t09"`},
		"twelve": {12, `there are "t00", "t01", "t02", "t03", "t04", "t05", "t06", "t07", "t08", "t09" and 2 more`},
	} {
		t.Run(name, func(t *testing.T) {
			var listed []string
			for i := range tc.breakers {
				listed = append(listed, fmt.Sprintf("t%02d", i))
			}
			f := newFixture(t, tools(listed...), console.Config{Authorize: allow})
			w := f.do(http.MethodPost, "/api/breakers/made%20up/isolate", "")
			assert.Equal(t, http.StatusNotFound, w.Code)
			var got struct{ Error string }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			assert.Equal(t, `the guard has no breaker "made up": `+tc.want, got.Error)
			assert.Len(t, f.guard.Breakers(), tc.breakers, "it wasn't made")
		})
	}
}
