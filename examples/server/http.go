package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"
)

// serveHTTP serves MCP, metrics and the console until ctx ends.
func serveHTTP(
	ctx context.Context, log *slog.Logger, cfg resilience.Config, addr string,
	newServer func(*resilience.Guard) *mcp.Server,
) error {
	token := os.Getenv(tokenVariable)
	page, err := console.New(console.Config{Title: "workspace", Authorize: authorize(token), Log: log})
	if err != nil {
		return err
	}
	handler, guard, err := newHandler(cfg, page, newServer)
	if err != nil {
		return err
	}
	defer shutDown(log, guard)
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	log.Info("serving", "mcp", url+"/mcp", "console", url+"/console/")

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(page.Close)
	done := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		shutDown(log, guard) // before the server, so that calls in flight can be answered
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			done <- server.Close() // a stream may stay open forever
			return
		}
		done <- nil
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	return <-done
}

// tokenVariable is the environment variable with the token that isolates and resets breakers.
const tokenVariable = "EXAMPLE_CONSOLE_TOKEN"

// authorize returns what allows requests with a token to change breakers. Without a token, nothing does.
func authorize(token string) func(*http.Request) bool {
	if token == "" {
		return nil
	}
	return func(r *http.Request) bool {
		return subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) == 1
	}
}

// newHandler returns a handler that serves MCP, metrics and the console, and the guard that it created for them.
func newHandler(
	cfg resilience.Config, page *console.Console, newServer func(*resilience.Guard) *mcp.Server,
) (http.Handler, *resilience.Guard, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, nil, err
	}
	telemetry, err := otelresilience.New(otelresilience.Config{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
		TracerProvider: noop.NewTracerProvider(), // replace it with one of OpenTelemetry's SDK
	})
	if err != nil {
		return nil, nil, err
	}

	cfg.Observers = append(slices.Clip(cfg.Observers), telemetry.Observer(), page.Observer())
	guard, err := resilience.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	if _, err := telemetry.Watch(guard); err != nil { // for as long as the program runs
		return nil, nil, err
	}
	operator, err := page.Handler(guard)
	if err != nil {
		return nil, nil, err
	}

	server := newServer(guard)
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/console/", http.StripPrefix("/console", operator))
	mux.Handle("GET /healthz", operator) // for a load balancer
	return mux, guard, nil
}
