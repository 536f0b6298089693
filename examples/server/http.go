package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"
)

// serveHTTP serves MCP, metrics and health until ctx ends.
func serveHTTP(
	ctx context.Context, log *slog.Logger, cfg resilience.Config, addr string,
	newServer func(*resilience.Guard) *mcp.Server,
) error {
	handler, guard, err := newHandler(cfg, newServer)
	if err != nil {
		return err
	}
	defer shutDown(log, guard)
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Info("serving", "mcp", "http://"+listener.Addr().String()+"/mcp")

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
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

// newHandler returns a handler that serves MCP, metrics and health, and the guard that it
// created for them.
func newHandler(
	cfg resilience.Config, newServer func(*resilience.Guard) *mcp.Server,
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

	cfg.Observers = append(slices.Clip(cfg.Observers), telemetry.Observer())
	guard, err := resilience.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	if _, err := telemetry.Watch(guard); err != nil { // for as long as the program runs
		return nil, nil, err
	}

	server := newServer(guard)
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", healthz(guard, cfg.Tools))
	return mux, guard, nil
}

// healthz answers a load balancer with 503 if none of the listed tools can be called, and with
// 200 otherwise. One tool whose backend is dead is no reason to remove the server: its other
// tools work, and the backend is as dead for other servers.
//
// Only listed tools count, not names that an agent made up. Last errors are left out: clients
// reach this address too, and an error may quote what another client sent.
func healthz(guard *resilience.Guard, listed map[string]resilience.Tool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		tools := make([]resilience.Health, 0, len(listed))
		available := 0
		for _, t := range guard.Health() {
			if _, ok := listed[t.Tool]; !ok {
				continue
			}
			if t.Available {
				available++
			}
			t.LastError, t.Keys = nil, nil
			tools = append(tools, t)
		}

		status, code := "degraded", http.StatusOK
		switch {
		case available == len(tools):
			status = "ok"
		case available == 0:
			status, code = "unavailable", http.StatusServiceUnavailable
		}

		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "tools": tools})
	}
}
