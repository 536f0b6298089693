package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// A subject is an MCP server and the API that its tools call.
type subject struct {
	name  string
	api   api
	serve func(ctx context.Context, via http.RoundTripper, guard *resilience.Guard) (*agent, error)

	good, missing, wrong call // of a tool that only reads
	write                call // of a tool that must not be repeated; zero: there is none
	limits               bool // the API tells of rate limits by 403 and headers

	// own is what the library makes of some situations by itself, within a single attempt.
	own map[string]want
}

// A situation is a call in the course of something.
type situation struct {
	name string
	behavior
	call
	want  want
	again bool // it is the second such call
}

// A want is what a guarded call is to come to.
type want struct {
	code       resilience.Code // of the guidance; empty: none
	retryAfter time.Duration
	counted    bool
	requests   int64
}

const attempts = 4 // one, and three retries

var (
	unsent    = want{requests: 0}
	answered  = want{requests: 1} // well, or with a rejection
	exhausted = want{resilience.CodeRetryExhausted, 0, true, attempts}
	later     = want{resilience.CodeRateLimited, wait, false, 1}
)

// situations returns all situations of a server.
func (s subject) situations() []situation {
	list := []situation{
		{"all is well", well, s.good, answered, false},
		{"an empty result", empty, s.good, answered, false},
		{"a parameter is missing", well, s.missing, unsent, false},
		{"a wrong argument", well, s.wrong, unsent, false},
		{"401, a bad token", answers(401), s.good, answered, false},
		{"403, forbidden", answers(403), s.good, answered, false},
		{"404", answers(404), s.good, answered, false},
		{"422", answers(422), s.good, answered, false},

		{"500", answers(500), s.good, exhausted, false},
		{"502 with a page of HTML", badGate, s.good, exhausted, false},
		{"503", answers(503), s.good, exhausted, false},
		{"429, Retry-After: 120", tooMany, s.good, later, false},
		{"the connection breaks off", breaks, s.good, exhausted, false},
		{"the connection is refused", refuses, s.good, exhausted, false},
		{"no answer", hangs, s.good, want{resilience.CodeTimeout, 0, true, 1}, false},
	}
	if s.limits {
		list = append(list,
			situation{"403, the rate limit is exhausted", limited, s.good, later, false},
			situation{"403, and the agent calls again", limited, s.good, unsent, true},
		)
	}
	if s.write.tool != "" {
		list = append(list,
			situation{"a write: 422", answers(422), s.write, answered, false},
			situation{"a write: 500", answers(500), s.write, want{resilience.CodeToolFailed, 0, true, 1}, false},
			situation{"a write: the connection breaks off", breaks, s.write,
				want{resilience.CodeConnectionLost, 0, true, 1}, false},
			situation{"a write: the connection is refused", refuses, s.write, exhausted, false},
			situation{"a write: no answer", hangs, s.write, want{resilience.CodeTimeout, 0, true, 1}, false},
		)
	}
	for i := range list {
		if own, ok := s.own[list[i].name]; ok {
			list[i].want = own
		}
	}
	return list
}

// A row is a situation of a server, and what comes of it without and with a guard.
type row struct {
	subject subject
	situation
	limits        limits
	bare, guarded reading
}

// try makes the call.
func (r *row) try(ctx context.Context, n network, guarded bool, got *reading) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", r.subject.name, r.situation.name, err)
		}
	}()

	var guard *resilience.Guard
	if guarded {
		timeouts := resilience.Timeouts{resilience.Quick: r.limits.tool}
		if guard, err = resilience.New(resilience.Config{Timeouts: timeouts}); err != nil {
			return err
		}
	}

	b := &backend{r.subject.api, r.behavior}
	stop, err := b.start(n)
	if err != nil {
		return err
	}
	defer stop()

	via := &counter{}
	via.DialContext = n.dial
	defer via.CloseIdleConnections()
	a, err := r.subject.serve(ctx, via, guard)
	if err != nil {
		return err
	}
	defer a.close()

	if r.again {
		if _, err := a.read(ctx, r.call, r.limits.agent); err != nil {
			return err
		}
	}
	requests, counted := via.requests.Load(), failures(guard)
	*got, err = a.read(ctx, r.call, r.limits.agent)
	got.requests, got.counted = via.requests.Load()-requests, failures(guard) > counted
	return err
}

// failures returns how many failures a guard has counted, if there is one.
func failures(guard *resilience.Guard) (n int) {
	if guard != nil {
		for _, h := range guard.Health() {
			n += h.ConsecutiveFailures
		}
	}
	return n
}
