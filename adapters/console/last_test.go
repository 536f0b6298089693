package console_test

import (
	"errors"
	"math"
	"runtime"
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
		f.call("x", 1, 0, resilience.MarkBackend(&resilience.Error{Code: "UPSTREAM", Message: strings.Repeat("x", 2000)}))
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

// A printedError calls a function when it is printed.
type printedError func()

func (e printedError) Error() string { e(); return "printed" }

// An error that can't be printed has no cause on the page, and hides nothing else.
func TestCausesThatCannotBePrinted(t *testing.T) {
	for name, method := range map[string]func(release chan struct{}){
		"blocks": func(release chan struct{}) { <-release },
		"panics": func(chan struct{}) { panic("p") },
		"exits":  func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				f := newFixture(t, tools("x", "y"), console.Config{ShowCauses: true})
				for range 40 { // more than are waited for
					f.call("x", 1, 0, resilience.MarkPermanent(printedError(func() { method(release) })))
					f.guard.Breaker("x").Reset()
					time.Sleep(time.Second)
				}
				f.call("y", 1, 0, resilience.MarkBackend(errors.New("boom")))
				time.Sleep(time.Second)
				health := f.health()
				assert.Empty(t, health.tool(t, "x").LastError.Cause)
				require.NotNil(t, health.tool(t, "y").LastError)
				close(release)
				synctest.Wait()

				f.call("y", 1, 0, resilience.MarkBackend(errors.New("boom")))
				assert.Equal(t, "boom", f.health().tool(t, "y").LastError.Cause)
			})
		})
	}
}

func TestRetryAfterOfABreakerThatIsOpenForEver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t, tools("x"), console.Config{})
		f.guard.Breaker("x").Trip(math.MaxInt64)
		assert.Greater(t, f.health().breaker(t, "x").RetryAfter, 9_000_000_000)
	})
}
