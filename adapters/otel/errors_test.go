package otelresilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// A badLog calls a function for each record, which may panic or block.
type badLog struct {
	slog.Handler
	do func()
}

func (l badLog) Handle(context.Context, slog.Record) error { l.do(); return nil }

func TestBadLogDoesntAffectTheExporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		for name, tc := range map[string]struct {
			do   func()
			want int // records
		}{
			"panics": {func() { panic("p") }, 3},
			"blocks": {func() { <-release }, 1}, // further errors don't pile up
		} {
			logged := 0
			log := slog.New(badLog{slog.NewTextHandler(io.Discard, nil), func() { logged++; tc.do() }})
			h := otelresilience.LogErrorsOnce(log)
			for range 3 {
				h.Handle(errBoom)
				synctest.Wait()
				time.Sleep(10 * time.Minute)
			}
			assert.Equal(t, tc.want, logged, name)
		}
		close(release)
		synctest.Wait()
	})
}

func TestNilLogIsTheDefaultAtTheTimeOfTheError(t *testing.T) {
	var out recorder
	before := slog.Default()
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		h := otelresilience.LogErrorsOnce(nil)
		slog.SetDefault(out.log())
		h.Handle(errBoom)
		synctest.Wait()
	})
	assert.Len(t, out.all(), 1)
}
