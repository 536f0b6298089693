package console

import (
	"cmp"
	"embed"
	"encoding/json"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"

	"github.com/seed8d1e2389/resilience"
)

// page contains the files of the page, as they are served.
//
//go:embed page
var page embed.FS

// policy allows the page its own files and requests, and nothing else: no script in the HTML, no other site, no
// frame around it. Trusted types forbid the page's script to make HTML of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, "index.html") // its relative URLs are meant from there
	})
	mux.HandleFunc("GET /page/{name}", func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, r.PathValue("name"))
	})

	mux.HandleFunc("GET /healthz", c.healthz)
	mux.HandleFunc("GET /api/health", c.health)
	mux.HandleFunc("GET /api/events", c.events)
	if c.cfg.Authorize != nil {
		for action, act := range map[string]func(*resilience.Breaker, string){"isolate": isolate, "reset": reset} {
			mux.HandleFunc("POST /api/breakers/{name}/"+action, c.control(act))
			mux.HandleFunc("POST /api/breakers/"+action, c.control(act)) // with the name in the query
		}
	}
	return c.protect(mux)
}

// kinds are the media types of the page's files, which the system's tables might know otherwise.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// serve answers with a file of the page.
func serve(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Content-Type", kinds[path.Ext(name)])
	http.ServeFileFS(w, r, page, "page/"+name)
}

func (c *Console) health(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, c.snapshot().document)
}

// protect sets the headers of all answers, and answers a request with 500 whose Authorize or Healthy panics.
func (c *Console) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Cache-Control":                "no-store",
			"Content-Security-Policy":      policy,
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Referrer-Policy":              "no-referrer",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
		} {
			w.Header().Set(name, value)
		}

		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				err := &resilience.PanicError{Value: p, Stack: debug.Stack()}
				c.log().Error("resilience: console: a request panicked",
					"path", r.URL.Path, "error", err.Error(), "stack", string(err.Stack))
				fail(w, http.StatusInternalServerError, "the request panicked")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (c *Console) log() *slog.Logger {
	return cmp.Or(c.cfg.Log, slog.Default())
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

func fail(w http.ResponseWriter, code int, text string) {
	answer(w, code, map[string]string{"error": text})
}
