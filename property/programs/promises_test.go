package programs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file holds what must be so for each call of a program: six of the nine promises. The second, and the breaker's
// part of the third, are in ledger_test.go, the eighth in effects_test.go, and the ninth in retries_test.go.

// promises return what is wrong with a call, nothing if nothing is.
var promises = []struct {
	name  string
	check func(*record) string
}{
	{"1: a call returns by its timeout", returnsInTime},
	{"1: TIMEOUT comes when the time is up", timeoutIsTrue},
	{"3: one return, one end", endsOnce},
	{"3: the answer of the tool is the answer of the call", answerStands},
	{"4: the last cause is kept", keepsCause},
	{"5: abandoned attempts are capped", isCapped},
	{"6: a caller who leaves is not a failure", letsCallerGo},
	{"7: a crash fails its own call", crashIsKept},
	{"8: what may have taken effect isn't repeated", isNotRepeated},
	{"8: no word of ours recommends to repeat it", isNotRecommended},
	{"9: no delay that doesn't fit", delaysFit},
	{"retries keep their bounds", retriesKeepBounds},
}

// headStart is how much later than a deadline of its caller a call may notice that, if nothing watches for it.
const headStart = time.Millisecond

// A pause lasts until the caller leaves.
func returnsInTime(r *record) string {
	if r.returned.at > r.due() && r.returned.at-r.due() > headStart {
		return fmt.Sprintf("it is due at %s", r.due())
	}
	return ""
}

func timeoutIsTrue(r *record) string {
	if r.verdict() != cutOff || r.cautious() || r.insists() || !r.left.never() {
		return ""
	}
	switch late := r.returned.at - r.due(); {
	case late < 0 || late > headStart:
		return fmt.Sprintf("it was cut off, but is due at %s", r.due())
	case !errors.Is(r.err, resilience.CodeTimeout):
		return "it was cut off by its timeout"
	case r.timeout > 0 && r.timeout < r.config.timeout && r.config.maxTimeout == 0 && r.ends[0].Counted:
		return "it is counted, though its caller had less time"
	case !r.hasLess() && r.isClosed() && r.last().ended.at > r.returned.at && !r.ends[0].Counted:
		return "it isn't counted"
	}
	return ""
}

// insists reports whether a tool whose context has ended has an answer all the same, just in time: a success, an
// *Error, or a mark that means more than a timeout does.
func (r *record) insists() bool {
	a := r.last()
	if a.ended.at != r.returned.at {
		return false
	}
	e := a.ending
	return e == nil || e.own || e.marked || !e.again && !e.silent && !e.crash
}

func endsOnce(r *record) string {
	if len(r.ends) != 1 {
		return fmt.Sprintf("%d ends", len(r.ends))
	}
	switch e := r.ends[0]; {
	case e.Attempts != len(r.attempts):
		return fmt.Sprintf("the end says %d attempts", e.Attempts)
	case e.Duration != r.returned.at-r.began.at || !e.Time.Equal(r.world.begin.Add(r.returned.at)):
		return fmt.Sprintf("the end says %s, after %s", e.Time, e.Duration)
	case e.Unfinished:
		if e.Err != nil || !errors.Is(r.err, resilience.ErrUnfinished) {
			return "the end says that it is unfinished"
		}
	case (e.Err == nil) != (r.err == nil) || e.Err != nil && e.Err.Code != r.err.Code:
		return fmt.Sprintf("the end says %v", e.Err)
	}

	for i, e := range r.retries {
		if e.Attempt != i+1 {
			return fmt.Sprintf("retry %d is of attempt %d", i+1, e.Attempt)
		}
	}
	if n := len(r.retries) - len(r.attempts); n != -1 && n != 0 && len(r.attempts) > 0 {
		return fmt.Sprintf("%d retries", len(r.retries))
	}
	return ""
}

func answerStands(r *record) string {
	a := r.last()
	if r.err == nil {
		if a == nil || a.ending != nil || r.value != a || a.ended.at > r.returned.at {
			return fmt.Sprintf("it has succeeded, with %v", r.value)
		}
		return ""
	}
	if r.verdict() != answered {
		return ""
	}
	if a.ending == nil {
		return "the tool has succeeded"
	}
	want := a.ending.code
	if want == "" {
		want = resilience.CodeToolFailed
	}
	sure := !a.ending.silent || a.told == "" && len(a.calls) == 0
	if got := r.err.Code; sure && got != want && got != resilience.CodeRetryExhausted && a.ending != &echo &&
		got != resilience.CodeCircuitOpen {
		return fmt.Sprintf("its code should be %s", want)
	}
	if got := r.err; got.Code == resilience.CodeRetryExhausted && want != got.Code && got.Attempts != len(r.attempts) {
		return fmt.Sprintf("%d attempts are exhausted", got.Attempts)
	}
	return ""
}

func keepsCause(r *record) string {
	if r.err == nil {
		return ""
	}
	for _, a := range slices.Backward(r.attempts) {
		switch {
		case a.ended.never() || a.ended.at > r.returned.at:
			continue // it was abandoned
		case a.cause == nil || a.ending.crash || errors.Is(r.err, a.cause):
		case a.ended.at == r.returned.at:
			continue // perhaps, too
		default:
			return fmt.Sprintf("the error of attempt %d is lost", a.number)
		}
		return ""
	}
	return ""
}

func isCapped(r *record) string {
	if len(r.attempts) == 0 {
		return ""
	}

	first, overdue := r.attempts[0].began, 0
	for _, other := range r.world.records {
		left := !other.returned.never() && other.returned.at < first.at
		if other.tool != r.tool || !left || !other.left.never() || other.timeout > 0 {
			continue
		}
		for _, a := range other.attempts {
			if a.ended.never() || a.ended.at > first.at {
				overdue++
			}
		}
	}
	if overdue >= r.world.maxAbandoned {
		return fmt.Sprintf("%d abandoned attempts still run", overdue)
	}
	return ""
}

func letsCallerGo(r *record) string {
	if r.left.never() || r.left.at > r.returned.at {
		v := r.verdict()
		if r.err != nil && r.err.Code == resilience.CodeCanceled && v != answered && v != unsure {
			return "CANCELED, but the caller is here"
		}
		return ""
	}
	if !r.waits && r.returned.at > r.left.at {
		return "it goes on without its caller"
	}

	for _, a := range r.attempts {
		if a.began.at > r.left.at || a.number > 1 && r.caller == "has left" {
			return fmt.Sprintf("attempt %d begins after that", a.number)
		}
	}
	canceled, v := r.leftBy.Error() == "context canceled", r.verdict()
	ended := (v == cutOff || v == inDelay) && r.left.at < min(r.due(), r.retryDue())
	if !ended || r.insists() || r.returned.at != r.left.at {
		return ""
	}
	switch {
	case r.ends[0].Counted:
		return "it is counted"
	case canceled && r.parent == nil && r.err.Code != resilience.CodeCanceled:
		return "it should be CANCELED"
	}
	return ""
}

func crashIsKept(r *record) string {
	a := r.last()
	if r.verdict() != answered || a.ending == nil || !a.ending.crash {
		return ""
	}
	var p *resilience.PanicError
	switch {
	case r.err == nil || r.err.Code != resilience.CodeToolFailed:
		return "it should be TOOL_FAILED"
	case a.ending.name == "exit" && !errors.Is(r.err, resilience.ErrGoexit):
		return "ErrGoexit is lost"
	case a.ending.name == "panic" && !errors.As(r.err, &p):
		return "the panic is lost"
	case r.parent == nil && r.isClosed() && !r.ends[0].Counted:
		return "it isn't counted"
	}
	return ""
}
