package programs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// This file holds the ways in which an attempt ends, and what each of them means.

// A cause is the error of one attempt, by which that is found again.
type cause struct {
	attempt *attempt
	inner   error
}

func (c *cause) Error() string { return fmt.Sprintf("the failure of %s", c.attempt) }
func (c *cause) Unwrap() error { return c.inner }

// An ending is a way to fail. What it means here is what the documentation says, in a table.
type ending struct {
	name     string
	fail     func(*cause) error
	counts   bool // on the breaker, if nothing else has a say
	again    bool // another try may help
	noEffect bool // the attempt has certainly left everything as it was
	marked   bool // the tool itself says so, whatever it has done
	silent   bool // it tells nothing, so the last report of the backend decides
	own      bool // it is an *Error with a suggestion of the tool's own
	crash    bool
	code     resilience.Code // what the caller gets, if nothing else has a say; empty: TOOL_FAILED
}

var endings = []ending{
	{name: "fail", counts: true, again: true, silent: true, fail: func(c *cause) error { return c }},
	{name: "fail without effect", counts: true, again: true, noEffect: true, marked: true,
		fail: func(c *cause) error { return resilience.MarkNoEffect(c) }},
	{name: "fail by the backend", counts: true, again: true,
		fail: func(c *cause) error { return fmt.Errorf("%w", resilience.MarkBackend(c)) }},
	{name: "fail for good", counts: true, fail: func(c *cause) error { return resilience.MarkPermanent(c) }},
	{name: "reject the arguments", code: resilience.CodeValidation,
		fail: func(c *cause) error { return resilience.MarkInvalid(c) }},
	{name: "be unfinished", code: resilience.CodeValidation,
		fail: wraps(fmt.Errorf("%w", resilience.ErrUnfinished))},
	{name: "be busy", counts: true, again: true, own: true, code: "BUSY", fail: func(c *cause) error {
		return &resilience.Error{
			Code: "BUSY", Message: "Busy.", Suggestion: "Come back.", Retryable: true, RetryAfter: 2 * time.Second,
			Err: c,
		}
	}},
	{name: "say no", counts: true, own: true, fail: func(c *cause) error {
		return &resilience.Error{Code: resilience.CodeToolFailed, Message: "No.", Suggestion: "Ask a person.", Err: c}
	}},
	{name: "say what is wrong", code: resilience.CodeValidation, own: true, fail: func(c *cause) error {
		return &resilience.Error{Code: resilience.CodeValidation, Message: "No such day.", Suggestion: "Look.", Err: c}
	}},
	{name: "fail with a TIMEOUT", counts: true, again: true, code: resilience.CodeTimeout, fail: func(c *cause) error {
		e := resilience.TimeoutError("other", time.Second)
		e.Err = c
		return e
	}},
	{name: "quit", code: resilience.CodeCanceled, own: true, fail: func(c *cause) error {
		return &resilience.Error{Code: resilience.CodeCanceled, Message: "I quit.", Suggestion: "Hire.", Err: c}
	}},
	{name: "be rejected elsewhere", own: true, code: resilience.CodeCircuitOpen, fail: func(c *cause) error {
		e := resilience.CircuitOpenError("other", time.Hour)
		e.Err = c
		return e
	}},
	{name: "be refused", counts: true, again: true, noEffect: true, code: resilience.CodeConnectionLost,
		fail: wraps(syscall.ECONNREFUSED)},
	{name: "lose the connection", counts: true, again: true, code: resilience.CodeConnectionLost,
		fail: wraps(syscall.ECONNRESET)},
	{name: "fail twice", counts: true, again: true, code: resilience.CodeConnectionLost,
		fail: func(c *cause) error { return errors.Join(syscall.ECONNREFUSED, c) }},
	{name: "ask for a minute", counts: true, again: true, silent: true, fail: wraps(inAMinute{errors.New("full")})},
	{name: "cancel something", silent: true, fail: wraps(context.Canceled)},
	{name: "exceed a deadline of its own", counts: true, again: true, code: resilience.CodeTimeout,
		fail: wraps(context.DeadlineExceeded)},
	{name: "panic", counts: true, crash: true, fail: func(c *cause) error { panic(c) }},
	{name: "exit", counts: true, crash: true, fail: func(*cause) error { runtime.Goexit(); return nil }},
}

func wraps(inner error) func(*cause) error {
	return func(c *cause) error { c.inner = inner; return c }
}

// inAMinute asks to be called again so late that no guard waits for it.
type inAMinute struct{ error }

func (inAMinute) RetryAfter() time.Duration { return time.Minute }

// echo is the ending of an attempt that returns the error of its context, which has ended.
var echo = ending{name: "return the error of the context", counts: true, again: true, fail: nil}

func endingOf(name string) ending {
	for _, e := range endings {
		if e.name == name {
			return e
		}
	}
	panic("no such ending: " + name)
}

// passedOn returns the ending of an attempt that returns the error of a call that it has made.
func passedOn(r *record) ending {
	end := ending{name: "pass on " + string(r.err.Code), code: r.err.Code, own: true}
	if r.err.Code == resilience.CodeCanceled {
		end.silent, end.code = true, "" // who has canceled it decides
	}
	return end
}
