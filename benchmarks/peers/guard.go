package peers

import (
	"context"

	"github.com/seed8d1e2389/resilience"
)

// newGuard is what this repository is about: every tool under one guard.
func newGuard(cooperative bool) func(Settings) System {
	return func(s Settings) System {
		g := NewGuard(s, cooperative)
		do := func(ctx context.Context, tool string, fn Tool) (string, error) {
			return resilience.Do(ctx, g, tool, fn)
		}
		all := func(ctx context.Context, tool string, fns []Tool) (failed int) {
			calls := make([]resilience.Call[string], len(fns))
			for i, fn := range fns {
				calls[i] = resilience.Call[string]{Tool: tool, Func: fn}
			}
			for _, r := range resilience.All(ctx, g, calls...) {
				if r.Err != nil {
					failed++
				}
			}
			return failed
		}
		return System{Do: do, All: all}
	}
}

// NewGuard returns a guard with the Settings, by which further fields of the Config may
// be set.
func NewGuard(s Settings, cooperative bool, more ...func(*resilience.Config)) *resilience.Guard {
	cfg := resilience.Config{
		Tools:        make(map[string]resilience.Tool, len(s.Tools)),
		Breaker:      resilience.BreakerConfig{Failures: s.Failures, Cooldown: s.Cooldown},
		Retry:        retry(s),
		MaxAbandoned: s.MaxAbandoned,
	}
	for _, name := range s.Tools {
		cfg.Tools[name] = resilience.Tool{
			Timeout:     s.Limit,
			Effect:      resilience.ReadOnly, // others are retried less often than the peers do it
			Cooperative: cooperative,
		}
	}
	for _, set := range more {
		set(&cfg)
	}
	return resilience.Must(resilience.New(cfg))
}

func retry(s Settings) resilience.Retry {
	r := resilience.Retry{
		MaxRetries: s.Retries,
		Backoff:    resilience.Backoff{Base: s.Delay, Max: s.maxDelay()},
	}
	if s.Retries == 0 {
		r.MaxRetries = -1 // 0 is the default
	}
	if s.Delay == 0 {
		// As good as none; without jitter, so that it sets a timer as all others do.
		r.Backoff = resilience.Backoff{Base: 1, Max: 1, Jitter: resilience.NoJitter}
	}
	return r
}
