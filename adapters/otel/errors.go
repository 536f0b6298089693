package otelresilience

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
)

// quietPeriod is how long there must have been no error before the next one is logged. It is
// longer than the minute that periodic readers and retrying exporters wait between two errors.
const quietPeriod = 5 * time.Minute

// LogErrorsOnce returns a handler for otel.SetErrorHandler. OpenTelemetry's exporters report
// each batch that they can't deliver. The handler logs the first of these errors as a warning
// and suppresses further ones, until there has been none for five minutes. It then logs the
// next one, with the number of suppressed errors.
//
// The handler never blocks an exporter, even if the log blocks, and is safe for concurrent use.
// A nil log means slog.Default() at the time of the error.
func LogErrorsOnce(log *slog.Logger) otel.ErrorHandler { return &errorHandler{log: log} }

type errorHandler struct {
	log *slog.Logger

	mu         sync.Mutex
	last       time.Time // when the latest error occurred
	suppressed int       // errors since the latest one that was logged
	logging    bool      // the log hasn't returned yet
}

func (h *errorHandler) Handle(err error) {
	if err == nil {
		return
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	quiet := now.Sub(h.last) >= quietPeriod
	h.last = now
	if !quiet || h.logging {
		h.suppressed++
		return
	}

	go h.warn(err, h.suppressed)
	h.suppressed, h.logging = 0, true
}

// warn logs err. It runs on a goroutine of its own, where a panic of err or of the log must not
// end the process.
func (h *errorHandler) warn(err error, suppressed int) {
	defer func() {
		_ = recover()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.logging = false
	}()

	log := h.log
	if log == nil {
		log = slog.Default()
	}
	args := []any{"error", fmt.Sprint(err)} // Sprint survives an Error method that panics
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	log.Warn("resilience: OpenTelemetry reported an error, telemetry may be lost; "+
		"further errors are suppressed until there has been none for a while", args...)
}
