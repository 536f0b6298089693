package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
)

func Example() {
	page, err := console.New(console.Config{
		Title: "workspace",
		// Without Authorize, the page can only be read.
		Authorize: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer swordfish" },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools:     map[string]resilience.Tool{"search": {}},
		Breaker:   resilience.BreakerConfig{Failures: 1},
		Observers: []resilience.Observer{page.Observer()},
	}))
	handler, err := page.Handler(guard)
	if err != nil {
		fmt.Println(err)
		return
	}

	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", handler))
	server := &http.Server{Handler: mux}
	server.RegisterOnShutdown(page.Close) // ends the streams, for which Shutdown would wait
	// A program would call server.ListenAndServe now.

	ask := func(method, path, token string) {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"reason": "maintenance until 14:00"}`))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	ask("POST", "/console/api/breakers/search/isolate", "guess")
	ask("GET", "/console/healthz", "")
	_, _ = resilience.Do(context.Background(), guard, "search", func(context.Context) (string, error) {
		return "", resilience.MarkBackend(errors.New("the index is gone"))
	})
	ask("GET", "/console/healthz", "")
	// Output:
	// 403 {"error":"not authorized"}
	// 200 {"status":"ok"}
	// 200 {"status":"degraded"}
}
