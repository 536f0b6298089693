package property

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

const (
	maxFailures = 3
	cooldown    = 30 * time.Second
)

// A breakerModel is a breaker whose calls follow each other.
type breakerModel struct {
	failures int
	opened   time.Time // zero if it is closed
}

func (m *breakerModel) rejects() bool { return !m.opened.IsZero() && time.Since(m.opened) < cooldown }

func (m *breakerModel) report(err error) {
	if err == nil {
		*m = breakerModel{}
		return
	}
	m.failures++
	if m.failures >= maxFailures {
		m.opened = time.Now()
	}
}

// An unlistedTest is a guard whose Config lists no tool, with a model of the breaker of each tool that it has. Calls of
// made-up names may come between any two calls, and must make no difference.
type unlistedTest struct {
	guard  *resilience.Guard
	models map[string]*breakerModel
	made   int // names
}

func (test *unlistedTest) do(tool string, err error) error {
	_, got := resilience.Do(context.Background(), test.guard, tool, failsWith(err))
	return got
}

func (test *unlistedTest) call(r *rapid.T) {
	tool := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "tool")
	err := rapid.SampledFrom([]error{nil, errors.New("failed"), errors.New("failed again")}).Draw(r, "result")
	m := test.models[tool]
	rejected := errors.Is(test.do(tool, err), resilience.CodeCircuitOpen)
	if rejected != m.rejects() {
		r.Fatalf("%s rejected: %t, should be: %t", tool, rejected, m.rejects())
	}
	if !rejected {
		m.report(err)
	}
}

// flood calls tools that the server doesn't have.
func (test *unlistedTest) flood(r *rapid.T) {
	for range rapid.IntRange(1, 400).Draw(r, "names") {
		test.made++
		err := test.do(fmt.Sprint("made up ", test.made), &resilience.Error{Code: resilience.CodeToolNotFound})
		if !errors.Is(err, resilience.CodeToolNotFound) {
			r.Fatalf("a made-up name: %v", err)
		}
	}
}

func (test *unlistedTest) wait(r *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 20).Draw(r, "seconds")) * time.Second)
}

func (test *unlistedTest) check(r *rapid.T) {
	if n := len(test.guard.Health()); n > 1025 {
		r.Fatalf("the guard keeps the state of %d tools", n)
	}
}

func TestMadeUpNamesNeitherFillTheMemoryNorMakeADifference(t *testing.T) {
	checkInBubble(t, func(r *rapid.T) {
		test := &unlistedTest{
			guard: resilience.Must(resilience.New(resilience.Config{
				Breaker: resilience.BreakerConfig{Failures: maxFailures, Cooldown: cooldown},
				Retry:   resilience.Retry{MaxRetries: -1},
			})),
			models: make(map[string]*breakerModel),
		}
		for _, tool := range []string{"a", "b", "c", "d"} {
			test.models[tool] = new(breakerModel)
			_ = test.do(tool, nil)
		}
		r.Repeat(map[string]func(*rapid.T){
			"call":  test.call,
			"flood": test.flood,
			"wait":  test.wait,
			"":      test.check,
		})
	})
}
