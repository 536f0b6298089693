package peers

import (
	"context"

	"github.com/seed8d1e2389/resilience"
)

// newGuard returns a constructor of this repository's guard, which protects every tool.
func newGuard(cooperative bool) func(Settings) Do {
	return func(s Settings) Do {
		g := NewGuard(s, cooperative)
		return func(ctx context.Context, tool string, fn Tool) (string, error) {
			return resilience.Do(ctx, g, tool, fn)
		}
	}
}

// NewGuard returns a guard with the given settings.
func NewGuard(s Settings, cooperative bool) *resilience.Guard {
	cfg := resilience.Config{
		Tools:   make(map[string]resilience.Tool, len(s.Tools)),
		Breaker: resilience.BreakerConfig{Failures: s.Failures, Cooldown: s.Cooldown},
		Retry:   retry(s),
	}

	for _, name := range s.Tools {
		cfg.Tools[name] = resilience.Tool{
			Timeout:     s.Timeout,
			Effect:      resilience.ReadOnly, // the peers retry every failure, the guard only harmless ones
			Cooperative: cooperative,
		}
	}
	return resilience.Must(resilience.New(cfg))
}

func retry(s Settings) resilience.Retry {
	r := resilience.Retry{
		MaxRetries: s.Retries,
		Backoff:    resilience.Backoff{Base: s.Delay, Max: s.maxDelay()},
	}

	if s.Retries == 0 {
		r.MaxRetries = -1 // zero would mean the default
	}
	if s.Delay == 0 {
		// The shortest delay is as good as none. Without jitter it always sets a timer, as
		// every longer delay does.
		r.Backoff = resilience.Backoff{Base: 1, Max: 1, Jitter: resilience.NoJitter}
	}
	return r
}
