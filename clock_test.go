package resilience

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A clock is pure arithmetic, so it is tested by itself: each step happens at a time since
// the start of the call, and the row says when the call must then end, and why.
func TestClockEndsByItsTimeoutItsMaximumOrTheDeadline(t *testing.T) {
	const (
		progress = iota
		pause
		resume
		deadline // of the caller, which changes to the time of the step
	)
	type step struct {
		does int
		at   time.Duration
	}
	for name, tc := range map[string]struct {
		timeout, maximum time.Duration
		steps            []step
		end              time.Duration
		callers          bool
		exceeded         time.Duration
		told             []bool // by progress whether it restarted the timeout, by resume whether no pause is left
	}{
		"timeout":           {timeout: 10, maximum: 10, end: 10, exceeded: 10},
		"no end of its own": {timeout: never, maximum: never, end: never, exceeded: never},
		"above the maximum": {timeout: 20, maximum: 10, end: 10, exceeded: 10},
		"caller's deadline": {timeout: 10, maximum: 10, steps: []step{{deadline, 4}},
			end: 4, callers: true, exceeded: 4},
		"the same deadline":   {timeout: 10, maximum: 10, steps: []step{{deadline, 10}}, end: 10, exceeded: 10},
		"progress":            {timeout: 10, maximum: 50, steps: []step{{progress, 7}}, end: 17, exceeded: 10, told: []bool{true}},
		"progress to maximum": {timeout: 10, maximum: 12, steps: []step{{progress, 7}}, end: 12, exceeded: 12, told: []bool{true}},
		"without a maximum":   {timeout: 10, maximum: 10, steps: []step{{progress, 7}}, end: 10, exceeded: 10, told: []bool{false}},
		"paused":              {timeout: 10, maximum: 10, steps: []step{{pause, 7}}, end: never, exceeded: 10},
		"paused, deadline": {timeout: 10, maximum: 10, steps: []step{{pause, 7}, {deadline, 90}},
			end: 90, callers: true, exceeded: 90},
		"no progress in a pause": {timeout: 10, maximum: 50,
			steps: []step{{pause, 7}, {progress, 8}}, end: never, exceeded: 10, told: []bool{false}},
		"resumed": {timeout: 10, maximum: 10, steps: []step{{pause, 7}, {resume, 100}},
			end: 110, exceeded: 10, told: []bool{true}},
		"pauses don't count towards the maximum": {timeout: 10, maximum: 30,
			steps: []step{{pause, 5}, {resume, 105}, {progress, 114}, {progress, 123}}, end: 130, exceeded: 30,
			told: []bool{true, true, true}},
		"a pause near the maximum": {timeout: 10, maximum: 12,
			steps: []step{{progress, 9}, {pause, 11}, {resume, 20}}, end: 30, exceeded: 12, told: []bool{true, true}},
		"overlapping pauses": {timeout: 10, maximum: 10,
			steps: []step{{pause, 2}, {pause, 4}, {resume, 6}}, end: never, exceeded: 10, told: []bool{false}},
		"overlapping pauses, all over": {timeout: 10, maximum: 30,
			steps: []step{{pause, 2}, {pause, 4}, {resume, 6}, {resume, 8}}, end: 18, exceeded: 10,
			told: []bool{false, true}},
		"overlapping pauses count from the first to the last": {timeout: 10, maximum: 30,
			steps: []step{{pause, 2}, {pause, 7}, {resume, 8}, {resume, 9}, {progress, 18}, {progress, 27}, {progress, 30}},
			end:   37, exceeded: 30, told: []bool{false, true, true, true, true}},
		"far away": {timeout: never - 5, maximum: never, steps: []step{{progress, 100}}, end: never, exceeded: never,
			told: []bool{true}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock(tc.timeout, tc.maximum)
			var told []bool
			for _, s := range tc.steps {
				switch s.does {
				case progress:
					told = append(told, c.progress(s.at))
				case pause:
					c.pause(s.at)
				case resume:
					told = append(told, c.resume(s.at))
				case deadline:
					c.deadline = s.at
				}
			}

			end, callers := c.end()
			got := fmt.Sprintln("end", end, "caller's", callers, "exceeded", c.exceeded())
			want := fmt.Sprintln("end", tc.end, "caller's", tc.callers, "exceeded", tc.exceeded)
			assert.Equal(t, want, got)
			assert.Equal(t, tc.told, told)
		})
	}
}

// Less than half of its time is too little for a call to say something about its tool.
func TestClockIsShortenedIfMostOfItsTimeHadPassed(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout, maximum, before time.Duration
		progress                 []time.Duration
		shortened                bool
	}{
		"half of the timeout":            {timeout: 10, maximum: 10, before: 5},
		"most of the timeout":            {timeout: 10, maximum: 10, before: 6, shortened: true},
		"half of the maximum":            {timeout: 10, maximum: 12, before: 6, progress: []time.Duration{9}},
		"most of the maximum":            {timeout: 10, maximum: 12, before: 7, progress: []time.Duration{9}, shortened: true},
		"most of the timeout, progress":  {timeout: 10, maximum: 50, before: 6, progress: []time.Duration{9}, shortened: true},
		"at the maximum after progress":  {timeout: 10, maximum: 20, before: 6, progress: []time.Duration{9, 18}},
		"nothing, and it was kept going": {timeout: 10, maximum: 20, progress: []time.Duration{9, 18}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock(tc.timeout, tc.maximum)
			c.before = tc.before
			for _, at := range tc.progress {
				c.progress(at)
			}
			assert.Equal(t, tc.shortened, c.shortened())
		})
	}
}

func TestClockIsImpatientIfTheDeadlineIsBeforeTheTimeout(t *testing.T) {
	for deadline, impatient := range map[time.Duration]bool{9: true, 10: false, 11: false} {
		c := newClock(10, 50)
		c.deadline = deadline
		assert.Equal(t, impatient, c.impatient(), deadline)
	}
}
