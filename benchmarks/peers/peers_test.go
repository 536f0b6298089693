package peers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// What is compared must do the same: these tests hold for every peer that claims to do
// what they look at. Time is that of a synctest bubble.

var errBoom = errors.New("boom")

func fail(context.Context) (string, error) { return "", errBoom }

// each runs test for each peer that does what it is about.
func each(t *testing.T, does func(Peer) bool, test func(*testing.T, Peer)) {
	for _, p := range List {
		if does(p) {
			t.Run(p.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test(t, p) })
			})
		}
	}
}

func all(Peer) bool { return true }

func TestValueAndError(t *testing.T) {
	each(t, all, func(t *testing.T, p Peer) {
		s := Default()
		s.Retries = 0
		do := p.New(s).Do
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

func TestBreaks(t *testing.T) {
	each(t, func(p Peer) bool { return p.Breaks }, func(t *testing.T, p Peer) {
		s := Default()
		s.Tools = []string{"broken", "sound"}
		s.Retries = 0
		do := p.New(s).Do
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
		ok := func(context.Context) (string, error) { return "value", nil }
		if v, err := do(t.Context(), "sound", ok); v != "value" || err != nil {
			t.Errorf("the other tool: %q, %v", v, err)
		}
		time.Sleep(s.Cooldown + 1)
		if v, err := do(t.Context(), "broken", ok); v != "value" || err != nil {
			t.Errorf("after the cooldown: %q, %v", v, err)
		}
	})
}

func TestRetries(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			each(t, func(p Peer) bool { return p.Retries }, func(t *testing.T, p Peer) {
				s := Default()
				s.Delay = delay
				do := p.New(s).Do
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
				calls = -10
				if _, err := do(t.Context(), "tool", third); !errors.Is(err, errBoom) || calls != -10+1+s.Retries {
					t.Errorf("%v, after %d attempts", err, calls+10)
				}
			})
		})
	}
}

func TestLimits(t *testing.T) {
	each(t, func(p Peer) bool { return p.Limits }, func(t *testing.T, p Peer) {
		s := Default()
		s.Retries = 0
		start := time.Now()
		_, err := p.New(s).Do(t.Context(), "tool", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		if took := time.Since(start); err == nil || took != s.Limit {
			t.Errorf("%v, after %s", err, took)
		}
	})
}

// A tool that ignores its context is what tells an enforced limit from another one.
func TestEnforces(t *testing.T) {
	each(t, func(p Peer) bool { return p.Limits }, func(t *testing.T, p Peer) {
		s := Default()
		s.Retries = 0
		start := time.Now()
		_, _ = p.New(s).Do(t.Context(), "tool", func(context.Context) (string, error) {
			time.Sleep(2 * s.Limit)
			return "too late", nil
		})
		want := 2 * s.Limit
		if p.Enforces {
			want = s.Limit
		}
		if took := time.Since(start); took != want {
			t.Errorf("it returned after %s, want %s", took, want)
		}
		time.Sleep(2 * s.Limit) // for a tool that was given up on
	})
}

func TestAll(t *testing.T) {
	each(t, all, func(t *testing.T, p Peer) {
		s := Default()
		s.Retries = 0
		start := time.Now()
		slow := func(context.Context) (string, error) { time.Sleep(time.Second); return "value", nil }
		failed := p.New(s).All(t.Context(), "tool", []Tool{slow, fail, slow})
		if took := time.Since(start); failed != 1 || took != time.Second {
			t.Errorf("%d failed, after %s", failed, took)
		}
	})
}
