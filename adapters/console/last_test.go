package console_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tool may put an answer of its backend into its message.
func TestLongMessageIsCut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{})
		upstream := &resilience.Error{Code: "UPSTREAM", Message: strings.Repeat("x", 2000)}
		f.call("x", 1, 0, resilience.MarkBackend(upstream))
		last := f.health().tool(t, "x").LastError
		assert.Equal(t, strings.Repeat("x", 1024)+"…", last.Message)
		assert.False(t, last.Time.IsZero())
	})
}

// What an agent does wrong isn't why a breaker has failures, though it has the same code and words.
func TestLastErrorIsTheFailureThatWasCounted(t *testing.T) {
	unexplained := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	mistake, refused := errors.New("no such branch: mian"), resilience.MarkBackend(errors.New("connection refused"))

	t.Run("a mistake afterwards", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, tools("x"), console.Config{ShowCauses: true})
			counted := time.Now()
			f.call("x", 1, 0, resilience.MarkPermanent(errors.New("connection refused")), unexplained)
			time.Sleep(5 * time.Minute)
			f.call("x", 1, 0, mistake, unexplained)
			last := f.health().tool(t, "x").LastError
			require.NotNil(t, last)
			assert.Equal(t, "connection refused", last.Cause)
			assert.True(t, counted.Equal(last.Time))
		})
	})
	t.Run("a call that was in flight when the breaker opened", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, tools("x"), console.Config{ShowCauses: true})
			go f.call("x", 1, 10*time.Second, mistake, unexplained)
			synctest.Wait()
			f.call("x", 5, 0, refused, unexplained)
			require.Equal(t, resilience.StateOpen, f.guard.Breaker("x").State())
			time.Sleep(10 * time.Second)
			assert.Equal(t, "connection refused", f.health().tool(t, "x").LastError.Cause)
		})
	})
}

func TestRetryAfterOfABreakerThatIsOpenForEver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{})
		f.guard.Breaker("x").Trip(math.MaxInt64)
		assert.Greater(t, f.health().breaker(t, "x").RetryAfter, 9_000_000_000)
	})
}

// A cause passes the guard's Scrub. A timeout of a tool that ignores it has none.
func TestCausesOfAGuardWithAScrub(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg := tools("x", "hangs", "outer")
		cfg.Scrub = func(text string) string { return strings.ReplaceAll(text, "10.0.0.7", "[ADDRESS]") }
		f := newFixture(t, cfg, console.Config{ShowCauses: true})
		f.call("x", 1, 0, errBoom)
		f.call("hangs", 1, time.Hour, nil)
		f.call("outer", 1, 0, fmt.Errorf("x: %w", resilience.AsError("x", errBoom)))
		d := f.health()
		assert.Contains(t, d.tool(t, "outer").LastError.Cause, "boom at [ADDRESS]")
		assert.Equal(t, "boom at [ADDRESS], password=[REDACTED]", d.tool(t, "x").LastError.Cause)
		assert.Empty(t, d.tool(t, "hangs").LastError.Cause)
		assert.Equal(t, 1, d.tool(t, "hangs").LastMinute.Failed)
		time.Sleep(2 * time.Hour)
	})
}
