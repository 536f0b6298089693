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
	"github.com/stretchr/testify/require"
)

func TestErrorsAreLoggedOnceUntilQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		h := otelresilience.LogErrorsOnce(r.log())
		h.Handle(nil)
		for i := range 100 {
			h.Handle(fmt.Errorf("refused %d", i))
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		logged := r.all()
		require.Len(t, logged, 1)
		assert.Contains(t, logged[0], "level=WARN")
		assert.Contains(t, logged[0], `error="refused 0"`)
		assert.NotContains(t, logged[0], "suppressed=")

		time.Sleep(4 * time.Minute)
		h.Handle(errors.New("again"))
		h.Handle(errors.New("and again"))
		synctest.Wait()
		logged = r.all()
		require.Len(t, logged, 2)
		assert.Contains(t, logged[1], "error=again")
		assert.Contains(t, logged[1], "suppressed=99")

		time.Sleep(5*time.Minute - 1)
		h.Handle(errors.New("not quiet for long enough"))
		synctest.Wait()
		require.Len(t, r.all(), 2)

		time.Sleep(5 * time.Minute)
		h.Handle(errors.New("once more"))
		synctest.Wait()
		assert.Contains(t, r.all()[2], "suppressed=2")
	})
}

func TestNilLogIsTheDefaultAtTheTimeOfTheError(t *testing.T) {
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

// A badLog calls a function for each record, which may panic or block.
type badLog struct {
	slog.Handler
	do func()
}

func (l badLog) Handle(context.Context, slog.Record) error { l.do(); return nil }

func TestBadLogDoesntAffectTheExporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		logged := 0
		for name, do := range map[string]func(){
			"panics": func() { logged++; panic("p") },
			"exits":  func() { logged++; runtime.Goexit() },
			"blocks": func() { logged++; <-release },
		} {
			logged = 0
			h := otelresilience.LogErrorsOnce(slog.New(badLog{slog.NewTextHandler(&bytes.Buffer{}, nil), do}))
			for range 3 {
				h.Handle(errBoom)
				synctest.Wait()
				time.Sleep(10 * time.Minute)
			}
			if name == "blocks" {
				assert.Equal(t, 1, logged, "further errors don't pile up")
			} else {
				assert.Equal(t, 3, logged, name)
			}
		}
		close(release)
		synctest.Wait()
	})
}

func TestErrorThatPanicsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		h := otelresilience.LogErrorsOnce(r.log())
		h.Handle(badError{})
		synctest.Wait()
		assert.Len(t, r.all(), 1)
	})
}

func TestConcurrentErrorsAreLoggedOnce(t *testing.T) {
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
