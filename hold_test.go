package resilience_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

// of makes a call one of an agent with this session.
func of(session string) resilience.Option {
	return resilience.ForRequest(resilience.Request{RequestInfo: resilience.RequestInfo{Session: session}})
}

// An agent that calls again at once can't wait by itself, so its second call is held.
func TestSecondRejectionOfAnAgentIsHeld(t *testing.T) {
	const s = time.Second
	type took = []time.Duration
	type breaker = resilience.BreakerConfig
	agent, quick := opts(of("a")), resilience.Tool{Timeout: 4 * s}
	for name, tc := range map[string]struct {
		breaker breaker
		tool    resilience.Tool
		opts    []resilience.Option
		want    took // how long each call takes
		last    bool // whether the last one is admitted
	}{
		"ten seconds":          {opts: agent, want: took{0, 10 * s, 10 * s, 7 * s}, last: true},
		"no session":           {opts: opts(of("")), want: took{0, 0, 0}},
		"a program's own":      {want: took{0, 0, 0}},
		"half the timeout":     {tool: quick, opts: agent, want: took{0, 2 * s, 2 * s}},
		"a MaxHold of its own": {breaker: breaker{MaxHold: s}, opts: agent, want: took{0, s, s}},
		"never":                {breaker: breaker{MaxHold: -1}, opts: agent, want: took{0, 0, 0}},
		"the cooldown ends":    {breaker: breaker{Cooldown: 5 * s}, opts: agent, want: took{0, 4 * s}, last: true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg := configWith(tc.tool)
			cfg.Breaker = tc.breaker
			g := newGuard(t, cfg)
			g.Breaker("x").Trip(0)
			for i, want := range tc.want {
				r := resilience.Run(t.Context(), g, "x", succeed, tc.opts...)
				assert.Equal(t, want, r.Duration)
				assert.Equal(t, tc.last && i == len(tc.want)-1, r.Err == nil, i)
				time.Sleep(s)
			}
		})
	}
}

func opts(all ...resilience.Option) []resilience.Option { return all }

// An agent that hasn't been rejected yet gets its answer at once, and so does the 17th that waits. One that leaves
// needn't wait.
func TestHeldCallsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{})
		g.Breaker("x").Trip(time.Hour)
		call := func(ctx context.Context, session string) time.Duration {
			return resilience.Run(ctx, g, "x", notCalled(t), of(session)).Duration
		}

		for i := range 20 {
			assert.Zero(t, call(t.Context(), fmt.Sprint(i)))
		}
		assert.Zero(t, call(t.Context(), "0"), "a parallel call")
		time.Sleep(time.Second)
		took := make(chan time.Duration, 20)
		for i := range 20 {
			go func() { took <- call(t.Context(), fmt.Sprint(i)) }()
		}
		synctest.Wait()
		assert.Len(t, took, 4)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Len(t, took, 20)

		time.Sleep(time.Second)
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		assert.Equal(t, time.Second, call(ctx, "0"))
	})
}

// A Probe that closes the breaker lets the held call pass.
func TestHeldCallPassesOnceTheBackendIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Probe = func(context.Context) error { return nil }
		g := newGuard(t, cfg)
		g.Breaker("x").Trip(0)
		assert.ErrorIs(t, resilience.Run(t.Context(), g, "x", notCalled(t), of("a")).Err, resilience.CodeCircuitOpen)
		time.Sleep(time.Second)
		r := resilience.Run(t.Context(), g, "x", succeed, of("a"))
		assert.Nil(t, r.Err)
		assert.LessOrEqual(t, r.Duration, 5*time.Second)
	})
}

// Held calls of a dead backend leave the places of Tool.MaxInFlight to another one.
func TestHeldCallTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{MaxInFlight: 1})
		dead := resilience.BreakerKey("dead")
		for range 5 {
			_, _ = resilience.Do(t.Context(), g, "x", failing(9, errBoom), dead)
		}
		for range 2 {
			go func() { _, _ = resilience.Do(t.Context(), g, "x", notCalled(t), dead, of("a")) }()
			time.Sleep(time.Second)
		}
		assert.Nil(t, resilience.Run(t.Context(), g, "x", succeed, resilience.BreakerKey("well")).Err)
		time.Sleep(10 * time.Second)
	})
}

// The time in which a call is held belongs to its timeout.
func TestPromise1HeldCallReturnsByItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second})
		g.Breaker("x").Trip(5 * time.Second)
		for range 2 {
			r := resilience.Run(t.Context(), g, "x", hang(time.Hour), of("a"))
			if r.Attempts > 0 {
				assert.Equal(t, 10*time.Second, r.Duration)
				assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, resilience.StateOpen, g.Breaker("x").State(), "the held call was the probe")
		time.Sleep(time.Hour)
	})
}

// Close doesn't wait for calls that are held. A call within a tool, one of a client, and one that an operator keeps out
// aren't held.
func TestCallsThatAreNotHeld(t *testing.T) {
	asClient := resilience.ForRequest(resilience.Request{
		RequestInfo: resilience.RequestInfo{Session: "a", Client: true},
	})
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{})
		g.Breaker("x").Trip(time.Hour)
		took := func(ctx context.Context, o resilience.Option) time.Duration {
			time.Sleep(time.Second)
			return resilience.Run(ctx, g, "x", notCalled(t), o).Duration
		}
		assert.Zero(t, took(t.Context(), of("a")))
		assert.Zero(t, took(t.Context(), asClient))
		_, err := resilience.Do(t.Context(), g, "outer", func(ctx context.Context) (int, error) {
			assert.Zero(t, took(ctx, of("a")))
			return 1, nil
		})
		assert.NoError(t, err)
		g.Breaker("x").Isolate("")
		assert.Zero(t, took(t.Context(), of("a")))
		g.Breaker("x").Reset()
		g.Breaker("x").Trip(time.Hour)
		assert.Zero(t, took(t.Context(), of("a")))

		go func() { _ = took(t.Context(), of("a")) }()
		time.Sleep(2 * time.Second)
		start := time.Now()
		_, err = g.Close(t.Context())
		assert.NoError(t, err)
		assert.Less(t, time.Since(start), time.Second)
	})
}
