package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// Calls of all kinds, with children of their contexts taken at any moment: each ends by its
// timeouts, with the outcome of what ended it, and everything that hangs on it ends then.
func TestRandomCalls(t *testing.T) {
	for seed := range uint64(500) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomCall(t, seed) })
		})
		if !ok {
			return
		}
	}
}

func randomCall(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	ms := func(n int) time.Duration { return time.Duration(r.IntN(n)+1) * time.Millisecond }
	tool := resilience.Tool{Effect: resilience.ReadOnly, Timeout: ms(100)*10 + 1*time.Microsecond}
	if r.IntN(4) == 0 {
		tool.Cooperative = true
	}
	longest := tool.Timeout
	if r.IntN(3) == 0 {
		tool.MaxTimeout = tool.Timeout * 3
		longest = tool.MaxTimeout
	}
	cfg := resilience.Config{Tools: map[string]resilience.Tool{"x": tool}}
	cfg.Retry = resilience.Retry{MaxRetries: r.IntN(5), Backoff: resilience.Backoff{Base: ms(100), Max: ms(200) + 100*time.Millisecond}}
	if r.IntN(2) == 0 {
		cfg.AttemptTimeout = ms(300) + 3*time.Microsecond
	}
	cfg.Breaker.Failures = 1
	g := newGuard(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	boom := errors.New("boom")
	parent := time.Duration(1 << 62)
	start := time.Now()
	kind := r.IntN(4)
	switch kind {
	case 1:
		parent = ms(1000) + 7*time.Microsecond
		c, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(parent, func() { cancel(boom) })
		ctx = c
	case 2:
		parent = ms(1000) + 7*time.Microsecond
		c, cancel := context.WithTimeoutCause(ctx, parent, boom)
		defer cancel()
		ctx = c
	case 3: // nested in a WithTimeout
		parent = ms(1000) + 7*time.Microsecond
	}
	var mu sync.Mutex
	type seen struct {
		ctx context.Context
		at  time.Duration
	}
	var closed []seen
	var wg sync.WaitGroup
	watch := func(c context.Context, after time.Duration, how int) {
		wg.Go(func() {
			time.Sleep(after)
			switch how {
			case 0:
				<-c.Done()
			case 1:
				d, cancel := context.WithCancel(c)
				<-d.Done()
				cancel()
				c = d
			case 2:
				ch := make(chan struct{})
				context.AfterFunc(c, func() { close(ch) })
				<-ch
			case 3:
				d, cancel := context.WithTimeout(context.WithValue(c, ctxKey("k"), 2), time.Hour)
				<-d.Done()
				cancel()
				c = d
			case 4:
				resume := resilience.Pause(c)
				resume()
				d, cancel := context.WithCancelCause(c)
				<-d.Done()
				cancel(nil)
				c = d
			}
			mu.Lock()
			defer mu.Unlock()
			closed = append(closed, seen{c, time.Since(start)})
		})
	}
	var attempts []int
	progresses := r.IntN(2) == 0
	fn := func(ctx context.Context) (int, error) {
		n := resilience.Attempt(ctx)
		mu.Lock()
		attempts = append(attempts, n)
		dur, ends := ms(1500)+11*time.Microsecond, r.IntN(3)
		hows, afters := []int{r.IntN(4), r.IntN(4), r.IntN(4)}, []time.Duration{0, ms(300), ms(1500)}
		fail := r.IntN(4)
		mu.Unlock()
		for i := range hows {
			watch(ctx, afters[i], hows[i])
		}
		if tool.Cooperative {
			ends = 1
		}
		if progresses {
			resilience.ReportProgress(ctx)
		}
		switch ends {
		case 0: // ignores
			time.Sleep(dur)
		default:
			select {
			case <-time.After(dur):
			case <-ctx.Done():
				if ctx.Err() == nil || context.Cause(ctx) == nil {
					t.Error("no Err")
				}
				return n, ctx.Err()
			}
		}
		switch fail {
		case 0:
			return n, nil
		case 1:
			return n, resilience.MarkPermanent(errBoom)
		}
		return n, errBoom
	}
	var res resilience.Result[int]
	if kind == 3 {
		_, _ = resilience.WithTimeout(ctx, "outer", parent, func(ctx context.Context) (int, error) {
			res = resilience.Run(ctx, g, "x", fn)
			return 0, nil
		})
		synctest.Wait()
	} else {
		res = resilience.Run(ctx, g, "x", fn)
	}
	took := res.Duration
	if took > longest || took > parent {
		t.Errorf("took %v, timeouts %v %v", took, longest, parent)
	}
	if res.Err != nil {
		switch {
		case took == parent && kind == 1:
			assert.Equal(t, resilience.CodeCanceled, res.Err.Code)
			assert.ErrorIs(t, res.Err, boom)
		case took == parent:
			assert.Equal(t, resilience.CodeTimeout, res.Err.Code)
		case took >= tool.Timeout && tool.MaxTimeout == 0:
			assert.Equal(t, resilience.CodeTimeout, res.Err.Code)
		}
		if took == parent {
			assert.Equal(t, resilience.StateClosed, g.Breaker("x").State())
		}
	}
	synctest.Wait()
	mu.Lock()
	for _, s := range closed {
		if s.at > took {
			t.Errorf("closed at %v, took %v", s.at, took)
		}
	}
	mu.Unlock()
	h := g.Health()[0]
	assert.Zero(t, h.InFlight)
	time.Sleep(time.Hour)
	wg.Wait()
	assert.Zero(t, g.Health()[0].Abandoned)
	for i, a := range attempts {
		assert.Equal(t, i+1, a)
	}
}
