package console_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

func TestAllAnswersHaveTheHeaders(t *testing.T) {
	f := newFixture(t, tools("x"), console.Config{Authorize: allow})
	for _, path := range []string{
		"/", "/page/page.js", "/healthz", "/api/health", "/api/events", "/nothing", isolateX,
	} {
		h := f.do(http.MethodGet, path, "").Header()
		assert.Equal(t, policy, h.Get("Content-Security-Policy"), path)
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "DENY", h.Get("X-Frame-Options"), path)
		assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"), path)
		assert.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"), path)
		assert.Equal(t, "same-origin", h.Get("Cross-Origin-Opener-Policy"), path)
		assert.Equal(t, "no-store", h.Get("Cache-Control"), path)
		assert.Empty(t, h.Get("Access-Control-Allow-Origin"), path)
	}
}

// The system's tables might know other types.
func TestFilesHaveTheirTypes(t *testing.T) {
	f := newFixture(t, tools("x"), console.Config{})
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/page.js": "text/javascript; charset=utf-8",
		"/page/style.css": "text/css; charset=utf-8", "/page/icon.svg": "image/svg+xml",
	} {
		assert.Equal(t, kind, f.do(http.MethodGet, path, "").Header().Get("Content-Type"), path)
	}
	assert.Equal(t, "no", f.do(http.MethodHead, "/api/events", "").Header().Get("X-Accel-Buffering"))
}

var (
	links   = regexp.MustCompile(`(?:href|src)="([^"#]+)"`)
	imports = regexp.MustCompile(`from "\./([^"]+)"`)
)

// The page works below any prefix, and needs nothing from elsewhere.
func TestThePageHasAllOfItsFilesBelowAPrefix(t *testing.T) {
	f := newFixture(t, tools("x"), console.Config{})
	mux := http.NewServeMux()
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", f.handler))
	get := func(path string) (kind, body string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ops/console/"+path, nil))
		require.Equal(t, http.StatusOK, w.Code, path)
		return w.Header().Get("Content-Type"), w.Body.String()
	}

	kind, html := get("")
	assert.Equal(t, "text/html; charset=utf-8", kind)
	scripts := []string{}
	for _, m := range links.FindAllStringSubmatch(html, -1) {
		assert.False(t, strings.HasPrefix(m[1], "/") || strings.Contains(m[1], ":"), "%s isn't relative", m[1])
		kind, _ := get(m[1])
		if strings.HasSuffix(m[1], ".js") {
			assert.Equal(t, "text/javascript; charset=utf-8", kind)
			scripts = append(scripts, m[1])
		}
	}

	for i := 0; i < len(scripts); i++ { // the list grows
		_, text := get(scripts[i])
		assert.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(`, text, scripts[i])
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(scripts, "page/"+m[1]) {
				scripts = append(scripts, "page/"+m[1])
			}
		}
	}
	assert.Len(t, scripts, 8)
	assert.NotRegexp(t, `<script>|style="| on[a-z]+="`, html, "the policy forbids it")
}

func TestMethods(t *testing.T) {
	f := newFixture(t, tools("x"), console.Config{Authorize: allow})
	for _, path := range []string{"/", "/healthz", "/api/health", "/api/events", "/page/style.css"} {
		w := f.do(http.MethodPost, path, "")
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
		assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"), path)
	}
	w := f.do(http.MethodGet, isolateX, "")
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
	assert.Equal(t, "POST", w.Header().Get("Allow"))
	assert.Equal(t, http.StatusNotFound, f.do(http.MethodGet, "/page/", "").Code)
	assert.Equal(t, http.StatusNotFound, f.do(http.MethodGet, "/page/missing.js", "").Code)
}
