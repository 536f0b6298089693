package peers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Peers that are compared must do the same work, so each test runs for every peer that claims
// to do what it checks.

var errBoom = errors.New("boom")

func succeed(context.Context) (string, error) { return "value", nil }
func fail(context.Context) (string, error)    { return "", errBoom }

// each runs test in a synctest bubble, for each peer for which does returns true.
func each(t *testing.T, does func(Peer) bool, test func(*testing.T, Peer)) {
	for _, p := range slices.Concat(List, Minimal) {
		if does(p) {
			t.Run(p.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test(t, p) })
			})
		}
	}
}

func always(Peer) bool     { return true }
func timesOut(p Peer) bool { return p.TimesOut }

// withoutRetries returns the default settings, in which a failed call isn't retried.
func withoutRetries() Settings {
	s := Default()
	s.Retries = 0
	return s
}

func TestPeersReturnTheToolsValueAndError(t *testing.T) {
	each(t, always, func(t *testing.T, p Peer) {
		do := p.New(withoutRetries())

		v, err := do(t.Context(), "tool", func(ctx context.Context) (string, error) {
			return "value", ctx.Err()
		})
		if v != "value" || err != nil {
			t.Errorf("success: %q, %v", v, err)
		}

		if _, err := do(t.Context(), "tool", fail); !errors.Is(err, errBoom) {
			t.Errorf("failure: %v", err)
		}
	})
}

func TestBreakerOpensAndCloses(t *testing.T) {
	each(t, func(p Peer) bool { return p.Breaks }, func(t *testing.T, p Peer) {
		s := withoutRetries()
		s.Tools = []string{"broken", "healthy"}
		do := p.New(s)
		calls := 0
		broken := func(context.Context) (string, error) { calls++; return "", errBoom }

		for range s.Failures {
			_, _ = do(t.Context(), "broken", broken)
		}
		if calls != s.Failures {
			t.Errorf("it opened after %d failures, want %d", calls, s.Failures)
		}

		if _, err := do(t.Context(), "broken", broken); err == nil || calls != s.Failures {
			t.Errorf("open: %v, after %d calls", err, calls)
		}
		if v, err := do(t.Context(), "healthy", succeed); v != "value" || err != nil {
			t.Errorf("the other tool: %q, %v", v, err)
		}

		time.Sleep(s.Cooldown + 1)
		if v, err := do(t.Context(), "broken", succeed); v != "value" || err != nil {
			t.Errorf("after the cooldown: %q, %v", v, err)
		}
	})
}

func TestRetriesUntilSuccessOrExhaustion(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			each(t, func(p Peer) bool { return p.Retries }, func(t *testing.T, p Peer) {
				s := Default()
				s.Delay = delay
				do := p.New(s)
				calls := 0
				third := func(context.Context) (string, error) {
					if calls++; calls < 3 {
						return "", errBoom
					}
					return "value", nil
				}

				if v, err := do(t.Context(), "tool", third); v != "value" || err != nil || calls != 3 {
					t.Errorf("%q, %v, after %d attempts", v, err, calls)
				}

				calls = -10 // so that every attempt of the next call fails
				if _, err := do(t.Context(), "tool", third); !errors.Is(err, errBoom) || calls != -10+1+s.Retries {
					t.Errorf("%v, after %d attempts", err, calls+10)
				}
			})
		})
	}
}

func TestTimeoutEndsAToolThatRespectsItsContext(t *testing.T) {
	each(t, timesOut, func(t *testing.T, p Peer) {
		s := withoutRetries()
		start := time.Now()

		_, err := p.New(s)(t.Context(), "tool", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		if took := time.Since(start); err == nil || took != s.Timeout {
			t.Errorf("%v, after %s", err, took)
		}
	})
}

func TestOnlyAnEnforcedTimeoutAbandonsAToolThatIgnoresItsContext(t *testing.T) {
	each(t, timesOut, func(t *testing.T, p Peer) {
		s := withoutRetries()
		start := time.Now()

		_, _ = p.New(s)(t.Context(), "tool", func(context.Context) (string, error) {
			time.Sleep(2 * s.Timeout)
			return "too late", nil
		})
		want := 2 * s.Timeout
		if p.Enforces {
			want = s.Timeout
		}
		if took := time.Since(start); took != want {
			t.Errorf("it returned after %s, want %s", took, want)
		}

		time.Sleep(2 * s.Timeout) // until an abandoned tool has returned
	})
}
