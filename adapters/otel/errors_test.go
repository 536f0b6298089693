package otelresilience_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel"
)

// A recorder is a handler of errors, or a log, that keeps what it gets.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Handle(err error) { r.add(err.Error()) }

func (r *recorder) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.lines...)
}

// Write takes one record of a slog.TextHandler.
func (r *recorder) Write(b []byte) (int, error) {
	r.add(string(b))
	return len(b), nil
}

func (r *recorder) log() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

// setErrorHandler records OpenTelemetry's errors while the test runs.
func setErrorHandler(t *testing.T) *recorder {
	r := &recorder{}
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(r)
	t.Cleanup(func() { otel.SetErrorHandler(before) })
	return r
}

func TestLogErrorsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		h := otelresilience.LogErrorsOnce(r.log())
		h.Handle(nil)
		for i := range 100 { // an hour and more, once a minute
			h.Handle(fmt.Errorf("refused %d", i))
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		said := r.all()
		if assert.Len(t, said, 1) {
			assert.Contains(t, said[0], "level=WARN")
			assert.Contains(t, said[0], `error="refused 0"`)
			assert.NotContains(t, said[0], "suppressed=")
		}

		time.Sleep(4 * time.Minute)
		h.Handle(errors.New("again"))
		h.Handle(errors.New("and again"))
		synctest.Wait()
		said = r.all()
		if assert.Len(t, said, 2) {
			assert.Contains(t, said[1], "error=again")
			assert.Contains(t, said[1], "suppressed=99")
		}

		time.Sleep(5 * time.Minute)
		h.Handle(errors.New("once more"))
		synctest.Wait()
		assert.Contains(t, r.all()[2], "suppressed=1")
	})
}

func TestLogErrorsOnceDefault(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		h := otelresilience.LogErrorsOnce(nil)
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
		h.Handle(errBoom)
		synctest.Wait()
	})
	assert.Equal(t, 1, strings.Count(out.String(), errBoom.Error()))
}

// badLog does something bad with each record.
type badLog struct {
	slog.Handler
	do func()
}

func (l badLog) Handle(context.Context, slog.Record) error { l.do(); return nil }

// Neither a log nor an error can harm the exporter that reports it.
func TestLogErrorsOnceCannotHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		said := 0
		for name, do := range map[string]func(){
			"panics": func() { said++; panic("p") },
			"exits":  func() { said++; runtime.Goexit() },
			"blocks": func() { said++; <-release },
		} {
			said = 0
			h := otelresilience.LogErrorsOnce(slog.New(badLog{slog.NewTextHandler(&bytes.Buffer{}, nil), do}))
			for range 3 {
				h.Handle(errBoom)
				synctest.Wait()
				time.Sleep(10 * time.Minute)
			}
			if name == "blocks" {
				assert.Equal(t, 1, said, "nobody piles up")
			} else {
				assert.Equal(t, 3, said, name)
			}
		}
		close(release)
		synctest.Wait()
		var r recorder
		h := otelresilience.LogErrorsOnce(r.log())
		h.Handle(nasty{})
		synctest.Wait()
		assert.Len(t, r.all(), 1)
	})
}

func TestLogErrorsOnceConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		h := otelresilience.LogErrorsOnce(r.log())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { h.Handle(errBoom) })
		}
		wg.Wait()
		synctest.Wait()
		assert.Len(t, r.all(), 1)
	})
}
