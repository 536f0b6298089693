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
	{"5: a late result is reported once", reportsLate},
	{"6: a caller who leaves is not a failure", letsCallerGo},
	{"7: a crash fails its own call", crashIsKept},
	{"8: what may have taken effect isn't repeated", isNotRepeated},
	{"8: no word of ours recommends to repeat it", isNotRecommended},
	{"9: no delay that doesn't fit", delaysFit},
	{"of Close: no new calls", endsWithGuard},
	{"retries keep their bounds", retriesKeepBounds},
	{"a transient failure is retried where it may be", retriesWhereItMay},
}

// headStart is how much later than a deadline of its caller a call may notice that, if nothing watches for it.
const headStart = time.Millisecond

// A Cooperative tool answers for itself. A pause lasts until the caller leaves.
func returnsInTime(r *record) string {
	limit := r.due()
	if a := r.last(); r.config.cooperative && a != nil {
		limit = max(limit, a.ended.at)
	}
	if r.returned.at > limit && r.returned.at-limit > headStart {
		return fmt.Sprintf("it is due at %s", limit)
	}

	for i, a := range r.attempts {
		if r.config.attemptTimeout == 0 || r.config.cooperative {
			break
		}
		answered := r.returned.at
		if i < len(r.retries) {
			answered = r.retries[i].Time.Sub(r.world.begin)
		}
		if due := a.clockOf().due; answered > due && answered-due > headStart && !r.waits {
			return fmt.Sprintf("attempt %d is due at %s", a.number, due)
		}
	}
	return ""
}

func timeoutIsTrue(r *record) string {
	cut := r.verdict() == cutOff && !r.cautious() && !r.insists()
	if !cut || r.config.cooperative || r.config.attemptTimeout > 0 {
		return ""
	}
	if late := r.returned.at - r.due(); r.left.never() && (late < 0 || late > headStart) {
		return fmt.Sprintf("it was cut off, but is due at %s", r.due())
	}
	if r.left.never() && !errors.Is(r.err, resilience.CodeTimeout) {
		return "it was cut off by its timeout"
	}
	return ""
}

// insists reports whether a tool whose context has ended has an answer all the same, just in time.
func (r *record) insists() bool {
	a := r.last()
	return a.ended.at == r.returned.at && (a.ending == nil || a.ending.own)
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
	case r.exited:
		if !r.config.cooperative || !errors.Is(e.Err, resilience.ErrGoexit) {
			return fmt.Sprintf("the goroutine has ended, and the end says %v", e.Err)
		}
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
		case a.ended.at == r.returned.at || a.lateForItself():
			continue // perhaps, too
		default:
			return fmt.Sprintf("the error of attempt %d is lost", a.number)
		}
		return ""
	}
	return ""
}

// lateForItself reports whether the attempt may have been abandoned at its own timeout.
func (a *attempt) lateForItself() bool {
	return a.config.attemptTimeout > 0 && a.ended.at >= a.clockOf().due
}

func isCapped(r *record) string {
	first := moment{}
	if len(r.attempts) > 0 {
		first = r.attempts[0].began
	}
	if first.never() || r.config.cooperative {
		return ""
	}

	overdue, running := 0, 0
	for _, other := range r.world.records {
		if other.tool != r.tool || other == r {
			continue
		}
		stillRuns := other.began.at < first.at && (other.returned.never() || other.returned.at > first.at)
		if stillRuns && !other.sharesAPlace() {
			running++
		}
		for _, a := range other.attempts {
			still := a.ended.never() || a.ended.at > first.at
			if still && other.left.never() && other.timeout == 0 && !other.returned.never() &&
				other.returned.at < first.at {
				overdue++
			}
		}
	}
	if overdue >= r.world.maxAbandoned {
		return fmt.Sprintf("%d abandoned attempts still run", overdue)
	}
	if r.config.maxInFlight > 0 && running >= r.config.maxInFlight && !r.sharesAPlace() {
		return fmt.Sprintf("%d other calls run", running)
	}
	return ""
}

// sharesAPlace reports whether a call of the same tool around it may have been in flight when it began, whose place it
// shares.
func (r *record) sharesAPlace() bool {
	for a := r.parent; a != nil; a = a.parent {
		if a.tool == r.tool && (a.returned.never() || a.returned.at >= r.began.at) {
			return true
		}
	}
	return false
}

// A tool that respects its context isn't reported.
func reportsLate(r *record) string {
	if r.config.cooperative || r.cautious() {
		return ""
	}
	least, most := 0, 0
	for i, a := range r.attempts {
		left := r.returned.at
		if i < len(r.retries) {
			left = r.retries[i].Time.Sub(r.world.begin)
		}
		respects := a.ending != nil && (a.ending.name == echo.name || a.ending.silent || a.ending.own ||
			a.ending.code == resilience.CodeTimeout)
		switch {
		case a.ended.at > left && !respects:
			least++
			most++
		case a.ended.at >= left:
			most++
		}
	}
	if n := len(r.lates); n < least || n > most {
		return fmt.Sprintf("%d late results of %d to %d", n, least, most)
	}
	return ""
}

func letsCallerGo(r *record) string {
	if r.left.never() || r.left.at > r.returned.at {
		if r.err != nil && r.err.Code == resilience.CodeCanceled && r.verdict() != answered {
			return "CANCELED, but the caller is here"
		}
		return ""
	}
	if !r.waits && !r.config.cooperative && r.returned.at > r.left.at {
		return "it goes on without its caller"
	}

	for _, a := range r.attempts {
		if a.began.at > r.left.at || a.number > 1 && r.caller == "has left" {
			return fmt.Sprintf("attempt %d begins after that", a.number)
		}
	}
	canceled := r.leftBy.Error() == "context canceled"
	byParent := r.parent != nil && !r.detached
	v := r.verdict()
	ended := (v == cutOff || v == inDelay) && r.left.at < min(r.due(), r.attemptDue(), r.retryDue())
	if ended && canceled && !byParent &&
		!r.insists() && r.err.Code != resilience.CodeCanceled && r.returned.at == r.left.at {
		return "it should be CANCELED"
	}
	return ""
}

func crashIsKept(r *record) string {
	a := r.last()
	if r.verdict() != answered || a.ending == nil || !a.ending.crash {
		return ""
	}
	switch {
	case r.err == nil || r.err.Code != resilience.CodeToolFailed:
		return "it should be TOOL_FAILED"
	case a.ending.name == "exit" && !errors.Is(r.err, resilience.ErrGoexit):
		return "ErrGoexit is lost"
	case a.ending.name == "panic" && !hasPanic(r.err, a.cause):
		return "the panic is lost"
	}
	return ""
}

// hasPanic reports whether err wraps a panic with that value, perhaps beside that of an earlier attempt.
func hasPanic(err error, value any) bool {
	if p, ok := err.(*resilience.PanicError); ok && p.Value == value {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return hasPanic(e.Unwrap(), value)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return hasPanic(err, value) })
	}
	return false
}

// endsWithGuard allows a closed guard the calls that those in flight make.
func endsWithGuard(r *record) string {
	after := !r.world.shut.never() && r.world.shut.before(r.began)
	rejected := r.err != nil && r.err.Code == resilience.CodeShuttingDown && len(r.attempts) == 0
	inFlight := r.parent != nil && r.parent.owner == r.parent.record &&
		(r.parent.returned.never() || r.parent.returned.at > r.began.at)
	switch {
	case after && r.parent == nil && len(r.attempts) > 0:
		return "the guard is closed"
	case rejected && (!after || inFlight):
		return "the guard should admit it"
	}
	return ""
}
