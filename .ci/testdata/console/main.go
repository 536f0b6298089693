// A program that serves the console of a guard.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
)

func main() {
	page, err := console.New(console.Config{})
	if err != nil {
		log.Fatal(err)
	}
	guard := resilience.Must(resilience.New(resilience.Config{
		Tools:     map[string]resilience.Tool{"search": {}},
		Breaker:   resilience.BreakerConfig{Failures: 1},
		Observers: []resilience.Observer{page.Observer()},
	}))
	handler, err := page.Handler(guard)
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/console", handler))
	defer server.Close()

	_, _ = resilience.Do(context.Background(), guard, "search", func(context.Context) (string, error) {
		return "", errors.New("the index is corrupt")
	})
	get(server.URL+"/console/", http.StatusOK)
	fmt.Print("healthz: ", get(server.URL+"/console/healthz", http.StatusOK)) // also with a dead backend
}

func get(url string, want int) string {
	res, err := http.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		log.Fatal(url, ": ", res.Status, " ", err)
	}
	return string(body)
}
