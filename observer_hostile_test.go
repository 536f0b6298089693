package resilience_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type nilSpan struct{ context.Context }

// A context that can't be asked is a mistake of the observer's, and harms nobody else.
func TestObserverBrokenContext(t *testing.T) {
	for _, broken := range []context.Context{(*nilSpan)(nil), &nilSpan{}} {
		log, _ := textLog(0)
		cfg := observed(resilience.Tool{Effect: resilience.ReadOnly}, resilience.Observer{
			Start: func(context.Context, resilience.CallStart) context.Context { return broken },
		})
		cfg.Log = log
		g := newGuard(t, cfg)
		_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
			assert.Nil(t, ctx.Value(ctxKey("no")))
			return failing(1, errBoom)(ctx)
		})
		assert.NoError(t, err)
	}
}

type counted struct {
	context.Context
	n *int
}

func (c counted) Value(k any) any {
	if k == ctxKey("missing") {
		*c.n++
	}
	return c.Context.Value(k)
}

// What isn't there is looked for once, however deep calls are nested.
func TestObserverContextIsOneChain(t *testing.T) {
	adds := resilience.Observer{Start: func(ctx context.Context, _ resilience.CallStart) context.Context {
		return context.WithValue(ctx, ctxKey("k"), 1)
	}}
	g := newGuard(t, resilience.Config{Observers: []resilience.Observer{adds, adds}})
	n := 0
	var nest func(context.Context, int) (int, error)
	nest = func(ctx context.Context, depth int) (int, error) {
		if depth == 0 {
			assert.Nil(t, ctx.Value(ctxKey("missing")))
			return 0, nil
		}
		return resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) { return nest(ctx, depth-1) })
	}
	_, err := nest(counted{t.Context(), &n}, 12)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// A Start that blocks costs 100ms, once, and is mentioned once, whatever else is told.
func TestObserverStartThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		release := make(chan struct{})
		o := r.observer()
		o.Start = func(context.Context, resilience.CallStart) context.Context { <-release; return nil }
		log, out := textLog(0)
		cfg := observed(resilience.Tool{}, o)
		cfg.Log = log
		g := newGuard(t, cfg)
		begin := time.Now()
		for range 20 {
			_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
			require.NoError(t, err)
		}
		assert.Equal(t, 100*time.Millisecond, time.Since(begin))
		open(t, g.Breaker("another")) // which it is told of
		flush(t, g)
		assert.Len(t, told[resilience.BreakerChange](&r), 1)
		assert.Empty(t, told[resilience.CallEnd](&r))
		assert.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
		close(release)
		synctest.Wait()
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil))
		flush(t, g)
		assert.Len(t, told[resilience.CallEnd](&r), 1)
		assert.Contains(t, out.String(), "caught up\" lost=20")
		assert.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
	})
}

// One that is too slow and isn't by turns doesn't fill the log.
func TestObserverThatIsSlowByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := textLog(0)
		n := 0
		cfg := observed(resilience.Tool{}, resilience.Observer{
			Start: func(context.Context, resilience.CallStart) context.Context {
				if n++; n%2 == 0 {
					time.Sleep(110 * time.Millisecond)
				}
				return nil
			},
			End: func(context.Context, resilience.CallEnd) {},
		})
		cfg.Log = log
		g := newGuard(t, cfg)
		for range 100 {
			_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		flush(t, g)
		assert.LessOrEqual(t, strings.Count(out.String(), "\n"), 2, out.String())
		time.Sleep(time.Minute)
		for range 4 {
			_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		flush(t, g)
		assert.Equal(t, 2, strings.Count(out.String(), "events are lost"), out.String())
	})
}

// The error is the caller's own: he may change it, and no observer changes it for him.
func TestObserverHasAnErrorOfItsOwn(t *testing.T) {
	g := newGuard(t, observed(resilience.Tool{}, resilience.LogObserver(slog.New(slog.DiscardHandler)), resilience.Observer{
		End: func(_ context.Context, e resilience.CallEnd) { e.Err.Suggestion = "changed" },
	}))
	for range 100 {
		_, err := resilience.Do(t.Context(), g, "x", failing(9, resilience.MarkPermanent(errBoom)))
		var e *resilience.Error
		require.ErrorAs(t, err, &e)
		assert.NotEqual(t, "changed", e.Suggestion)
		e.RetryAfter = time.Second
	}
	flush(t, g)
}

type nastyString struct{ do func() }

func (n nastyString) String() string { n.do(); return "" }

// What an observer panics with isn't printed where a call waits.
func TestObserverPanicValue(t *testing.T) {
	for name, do := range map[string]func(){"exits": runtime.Goexit, "panics": func() { panic("p") }} {
		t.Run(name, func(t *testing.T) {
			log, _ := textLog(0)
			cfg := observed(resilience.Tool{}, resilience.Observer{
				Start: func(context.Context, resilience.CallStart) context.Context { panic(nastyString{do}) },
			})
			cfg.Log = log
			g := newGuard(t, cfg)
			returned := make(chan bool, 1)
			go func() {
				ok := false
				defer func() { returned <- ok }()
				_, err := resilience.Do(t.Context(), g, "x", failing(0, nil))
				ok = err == nil
			}()
			assert.True(t, <-returned)
			flush(t, g)
		})
	}
}

// A client may use its _meta again.
func TestObserverHasTheRequestAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept map[string]any
		g := newGuard(t, observed(resilience.Tool{}, resilience.Observer{
			Start: func(_ context.Context, e resilience.CallStart) context.Context {
				kept = e.Request.Meta
				return nil
			},
		}))
		meta := map[string]any{"traceparent": "1"}
		request := resilience.Request{Meta: meta}
		_, _ = resilience.Do(t.Context(), g, "x", failing(0, nil), resilience.ForRequest(request))
		meta["traceparent"] = "2"
		assert.Equal(t, "1", kept["traceparent"])
	})
}
