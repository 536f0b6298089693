package console

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOutcomeOfACall(t *testing.T) {
	for code, want := range map[resilience.Code]outcome{
		resilience.CodeTimeout: failed, resilience.CodeConnectionLost: failed, resilience.CodeRetryExhausted: failed,
		resilience.CodeToolFailed: failed, resilience.CodeCircuitOpen: failed, "BUSY": failed,
		resilience.CodeCanceled: other, resilience.CodeValidation: other, resilience.CodeToolNotFound: other,
	} {
		e := resilience.CallEnd{Err: &resilience.Error{Code: code}, Attempts: 1}
		assert.Equal(t, want, outcomeOf(e), code)
		e.Attempts = 0
		assert.Equal(t, want == failed, outcomeOf(e) == rejected, code)
	}
	assert.Equal(t, succeeded, outcomeOf(resilience.CallEnd{}))
	assert.Equal(t, other, outcomeOf(resilience.CallEnd{Unfinished: true}))
}

// at is a time in the step of that number, which takes 10s.
func at(step int) time.Time { return time.Unix(int64(10*step), 0) }

func TestRecordIsOfTheLastSixtySteps(t *testing.T) {
	var c calls
	for n := range 200 {
		c.record(resilience.CallEnd{Label: "x", Time: at(n), Duration: time.Duration(n) * time.Millisecond}, "")
	}
	assert.Empty(t, c.of("y", at(199)).rows)

	r := c.of("x", at(199))
	require.Len(t, r.rows, 60)
	assert.Equal(t, at(140).Unix(), r.rows[0].start)
	assert.Equal(t, at(199).Unix(), r.rows[59].start)
	assert.EqualValues(t, 6, r.minute.Succeeded)
	assert.InDelta(t, 0.197, r.minute.P50, 0.15)
	assert.Positive(t, r.minute.P95)

	assert.Len(t, c.of("x", at(200)).rows, 59, "the oldest is over")
	assert.Len(t, c.of("x", at(258)).rows, 1)
	assert.Empty(t, c.of("x", at(259)).rows)

	var early calls
	early.record(resilience.CallEnd{Label: "x", Time: at(0)}, "")
	early.record(resilience.CallEnd{Label: "x", Time: at(2)}, "")
	assert.Len(t, early.of("x", at(3)).rows, 2, "since 1970")
}

func TestLatestRowsAreOfTwoSteps(t *testing.T) {
	rows := []row{{start: 80}, {start: 90}, {start: 100}, {start: 110}}
	for now, want := range map[int]int{99: 4, 100: 3, 105: 3, 110: 2, 119: 2, 120: 1, 129: 1, 130: 0} {
		assert.Len(t, latest(rows, time.Unix(int64(now), 0)), want, now)
	}
	assert.Empty(t, latest(nil, time.Unix(100, 0)))
}

func TestChangeIsRememberedUntilTheBreakerIsClosed(t *testing.T) {
	var c changes
	change := func(name string, from, to resilience.State) {
		c.record(resilience.BreakerChange{Breaker: name, From: from, To: to, Time: at(int(c.total))})
	}
	assert.Nil(t, c.of("x"))
	change("x", resilience.StateClosed, resilience.StateOpen)
	change("x", resilience.StateOpen, resilience.StateHalfOpen)
	require.NotNil(t, c.of("x"))
	assert.EqualValues(t, 1, c.of("x").Number)
	change("x", resilience.StateHalfOpen, resilience.StateClosed)
	assert.Nil(t, c.of("x"))

	for i := range maxSince + 100 {
		change(fmt.Sprint(i), resilience.StateClosed, resilience.StateOpen)
		require.NotNil(t, c.of(fmt.Sprint(i)))
	}
	assert.Less(t, len(c.since), maxSince)
}

func TestUpdateIsEmptyIfNothingHasChanged(t *testing.T) {
	assert.True(t, (&update{}).isEmpty())
	for name, u := range map[string]update{
		"tools":         {Tools: []tool{{}}},
		"breakers":      {Breakers: []breaker{{}}},
		"changes":       {Changes: []change{{}}},
		"closed":        {closed: true},
		"breakers gone": {Gone: []string{"x"}},
	} {
		assert.False(t, u.isEmpty(), name)
	}
}

// A guard that has breakers for 1,024 keys replaces the oldest one.
func TestUpdateHasTheBreakersThatAreGone(t *testing.T) {
	old := &snapshot{breakers: map[string]breaker{"kept": {}, "replaced": {}}}
	now := &snapshot{breakers: map[string]breaker{"kept": {}}}
	assert.Equal(t, []string{"replaced"}, now.since(old).Gone)
}

func TestSeverityOrdersStates(t *testing.T) {
	states := []resilience.State{
		resilience.StateClosed, resilience.StateHalfOpen, resilience.StateIsolated, resilience.StateOpen,
	}
	for i := 1; i < len(states); i++ {
		assert.Less(t, severity[states[i-1]], severity[states[i]])
	}
}

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60,
	} {
		assert.Equal(t, want, wholeSeconds(d), d)
	}
}

func TestDefaults(t *testing.T) {
	c, err := New(Config{})
	require.NoError(t, err)
	assert.Equal(t, defaultTitle, c.cfg.Title)
	assert.Equal(t, defaultMaxStreams, c.cfg.MaxStreams)
	assert.Same(t, slog.Default(), c.log())

	c, err = New(Config{Title: "t", MaxStreams: 2, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	assert.Equal(t, "t", c.cfg.Title)
	assert.Equal(t, 2, cap(c.streams))
	assert.NotSame(t, slog.Default(), c.log())
}

func TestMinuteHasTheLatenciesOfItsSteps(t *testing.T) {
	var c calls
	for range 5 {
		c.record(resilience.CallEnd{Label: "x", Time: at(10), Duration: time.Millisecond}, "")
	}
	c.record(resilience.CallEnd{Label: "x", Time: at(11), Duration: 10 * time.Second}, "")
	for range 100 { // which haven't reached the tool
		open := &resilience.Error{Code: resilience.CodeCircuitOpen}
		c.record(resilience.CallEnd{Label: "x", Time: at(11), Err: open}, "")
	}
	m := c.of("x", at(11)).minute
	assert.EqualValues(t, 100, m.Rejected)
	assert.Less(t, m.P50, 0.01)
	assert.Greater(t, m.P95, 1.0)
}

func TestTextIsCutAfterSoManyBytes(t *testing.T) {
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abc…", "abä": "ab…", "äbc": "äb…"} {
		assert.Equal(t, want, cut(text, 3), text)
	}
}

// An update holds what is new in a history.
func TestSnapshotHasTheLatestRowsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{})
		require.NoError(t, err)
		g, err := resilience.New(resilience.Config{Observers: []resilience.Observer{c.Observer()}})
		require.NoError(t, err)
		_, err = c.Handler(g)
		require.NoError(t, err)

		for range 5 {
			_, err := resilience.Do(t.Context(), g, "x", func(context.Context) (int, error) { return 1, nil })
			require.NoError(t, err)
			time.Sleep(step)
		}
		require.NoError(t, g.Flush(t.Context()))
		assert.Len(t, c.document().Tools[0].History, 5)
		assert.LessOrEqual(t, len(c.snapshot().tools["x"].History), 2)
	})
}

func TestSnapshotIsSharedForHalfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{})
		require.NoError(t, err)
		g, err := resilience.New(resilience.Config{Observers: []resilience.Observer{c.Observer()}})
		require.NoError(t, err)
		_, err = c.Handler(g)
		require.NoError(t, err)

		first := c.snapshot()
		time.Sleep(interval/2 - 1)
		assert.Same(t, first, c.snapshot())
		time.Sleep(time.Nanosecond)
		assert.NotSame(t, first, c.snapshot())
	})
}
