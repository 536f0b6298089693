package otelresilience

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
)

// quiet is how long there must have been no error for the next to be news. It is longer
// than the minute that periodic readers and retrying exporters let pass between two.
const quiet = 5 * time.Minute

// LogErrorsOnce returns a handler for otel.SetErrorHandler. OpenTelemetry's exporters
// report each batch that they can't deliver; this handler says it once, as a warning, and
// is quiet until there has been no error for five minutes: the next is said again, with
// the number of those that were not. It never blocks the exporter, also if the log's
// handler blocks. A nil log is slog.Default() at the time of the error. The handler is
// safe for concurrent use.
func LogErrorsOnce(log *slog.Logger) otel.ErrorHandler { return &errorHandler{log: log} }

type errorHandler struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time // of an error; zero: there was none
	unsaid int       // errors since the last one that was said
	saying bool      // the log has not taken the last one yet
}

func (h *errorHandler) Handle(err error) {
	if err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	news := h.last.IsZero() || now.Sub(h.last) >= quiet
	h.last = now
	if !news || h.saying {
		h.unsaid++
		return
	}
	unsaid := h.unsaid
	h.unsaid, h.saying = 0, true
	go h.say(err, unsaid)
}

// say runs on a goroutine of its own, where neither err nor the log may end the process.
func (h *errorHandler) say(err error, unsaid int) {
	defer func() {
		_ = recover()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.saying = false
	}()
	log := h.log
	if log == nil {
		log = slog.Default()
	}
	args := []any{"error", fmt.Sprint(err)} // which survives a method that panics
	if unsaid > 0 {
		args = append(args, "unsaid", unsaid)
	}
	log.Warn("resilience: OpenTelemetry reports an error, telemetry may be lost: not said again until there has been none for a while", args...)
}
