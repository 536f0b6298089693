package property

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

const (
	maxFailures = 3
	cooldown    = 30 * time.Second
)

// An unlistedTest is a guard whose Config lists no tool, and a model of the breaker of each tool that
// ever fails. The model forgets nothing. Calls of made-up names may come between any two calls, and must
// make no difference.
type unlistedTest struct {
	guard  *resilience.Guard
	models map[string]*breakerModel
	made   int // names
}

func (test *unlistedTest) call(r *rapid.T) {
	tool := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "tool")
	err := rapid.SampledFrom([]error{nil, errors.New("failed"), errors.New("failed again")}).Draw(r, "result")
	m := test.models[tool]
	if m == nil {
		m = &breakerModel{maxFailures: maxFailures, cooldown: cooldown}
		test.models[tool] = m
	}

	_, got := resilience.Do(context.Background(), test.guard, tool,
		func(context.Context) (int, error) { return 0, err })
	p := m.allow()
	if allowed := !errors.Is(got, resilience.CodeCircuitOpen); allowed != (p != nil) {
		r.Fatalf("%s allowed: %v, in state %v", tool, allowed, m.state)
	} else if allowed {
		m.report(p, err)
	}
}

// flood calls tools that aren't called again.
func (test *unlistedTest) flood(r *rapid.T) {
	for range rapid.IntRange(1, 400).Draw(r, "names") {
		test.made++
		_, err := resilience.Do(context.Background(), test.guard, fmt.Sprint("made up ", test.made),
			func(context.Context) (int, error) { return 0, nil })
		if err != nil {
			r.Fatalf("a made-up name: %v", err)
		}
	}
}

// wait may let a cooldown pass. A state is then forgotten only if there is none without failures.
func (test *unlistedTest) wait(r *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 10).Draw(r, "seconds")) * time.Second)
}

func (test *unlistedTest) check(r *rapid.T) {
	if n := len(test.guard.Health()); n > 1025 {
		r.Fatalf("the guard keeps the state of %d tools", n)
	}
	synctest.Wait()
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
		r.Repeat(map[string]func(*rapid.T){
			"call":  test.call,
			"flood": test.flood,
			"wait":  test.wait,
			"":      test.check,
		})
	})
}
