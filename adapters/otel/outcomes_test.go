package otelresilience_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// An outcome is a call and what its telemetry must say.
type outcome struct {
	canceled bool // whether the caller has left before the call
	before   func(*fixture)
	fn       toolFunc
	opts     []resilience.Option

	took     time.Duration
	code     string  // empty means no error
	counted  bool    // resilience.counted of a call with an error
	failure  string  // error.type of a call without a request; empty means no failure
	message  string  // the status description
	attempts int64   // zero for calls that never came to the tool
	timeout  float64 // zero means no attribute, as for the next two
	after    float64 // resilience.retry_after
	pending  bool    // resilience.unfinished
	retries  []retry
	panics   string // exception.type
}

type retry struct {
	attempt int64
	delay   float64
	failure string
}

var outcomes = map[string]outcome{
	"success": {fn: succeed, attempts: 1, timeout: 60},
	"success at last": {
		fn: func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) < 3 {
				return fail(ctx)
			}
			return succeed(ctx)
		},
		took: 300 * time.Millisecond, attempts: 3, timeout: 60,
		retries: []retry{{1, 0.1, "TOOL_FAILED"}, {2, 0.2, "TOOL_FAILED"}},
	},
	"retry exhausted": {
		fn:   failWith(context.DeadlineExceeded),
		code: "RETRY_EXHAUSTED", failure: "RETRY_EXHAUSTED", message: "Tool 'x' failed after 4 attempts",
		took: 700 * time.Millisecond, counted: true, attempts: 4, timeout: 60,
		retries: []retry{{1, 0.1, "TIMEOUT"}, {2, 0.2, "TIMEOUT"}, {3, 0.4, "TIMEOUT"}},
	},
	"failure": {
		fn:   failWith(resilience.MarkPermanent(errBoom)),
		code: "TOOL_FAILED", failure: "TOOL_FAILED", message: "Tool 'x' failed",
		counted: true, attempts: 1, timeout: 60,
	},
	"a code of the tool's own": {
		fn: failWith(resilience.MarkPermanent(&resilience.Error{
			Code: "QUOTA", Message: "no \xff more", RetryAfter: 90 * time.Second,
		})),
		code: "QUOTA", failure: "_OTHER", message: "no \uFFFD more",
		counted: true, attempts: 1, timeout: 60, after: 90,
	},
	"timeout": {
		fn: untilCanceled, code: "TIMEOUT", failure: "TIMEOUT", message: "Tool 'x' exceeded timeout of 60s",
		took: time.Minute, counted: true, attempts: 1, timeout: 60,
	},
	"a timeout of the call's own": {
		fn: untilCanceled, opts: []resilience.Option{resilience.Timeout(1500 * time.Millisecond)},
		code: "TIMEOUT", failure: "TIMEOUT", message: "Tool 'x' exceeded timeout of 1.5s",
		took: 1500 * time.Millisecond, attempts: 1, timeout: 1.5,
	},
	"circuit open": {
		before: func(f *fixture) {
			for range 5 {
				done, err := f.guard.Breaker("x").Allow()
				require.NoError(f, err)
				done(errBoom)
			}
		},
		fn: succeed, code: "CIRCUIT_OPEN", failure: "CIRCUIT_OPEN",
		message: "Circuit breaker open due to repeated failures. Calls are rejected for 30 more seconds.",
		timeout: 60, after: 30,
	},
	"canceled":   {canceled: true, fn: succeed, code: "CANCELED"},
	"unfinished": {fn: failWith(resilience.ErrUnfinished), attempts: 1, timeout: 60, pending: true},
	"panic": {
		fn: func(context.Context) (int, error) { panic(errBoom) }, panics: "*errors.errorString",
		code: "TOOL_FAILED", failure: "TOOL_FAILED", message: "Tool 'x' failed",
		counted: true, attempts: 1, timeout: 60,
	},
}

// A side is what the guarded program is to the request of a call.
type side struct {
	request  resilience.RequestInfo
	kind     trace.SpanKind
	span     string // its name
	duration string // the metric
}

var sides = map[string]side{
	"server": {serverRequest, trace.SpanKindServer, "tools/call x", "mcp.server.operation.duration"},
	"client": {
		resilience.RequestInfo{Method: "tools/call", Client: true},
		trace.SpanKindClient, "tools/call x", "mcp.client.operation.duration",
	},
	"plain": {resilience.RequestInfo{}, trace.SpanKindInternal, "execute_tool x", "resilience.call.duration"},
}

func TestSpanAndMetricsOfEachOutcome(t *testing.T) {
	for name, o := range outcomes {
		for sideName, s := range sides {
			runInBubble(t, name+"/"+sideName, func(t *testing.T) { o.run(t, s) })
		}
	}
}

func (o outcome) run(t *testing.T, s side) {
	f := newFixture(t, toolX(resilience.Tool{Effect: resilience.ReadOnly}))
	if o.before != nil {
		o.before(f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if o.canceled {
		cancel()
	}

	begin := time.Now()
	err := f.call(ctx, "x", o.fn, append(o.opts, forRequest(s.request))...)
	if o.code != "" {
		assert.ErrorIs(t, err, resilience.Code(o.code))
	}

	span := f.span(s.span)
	assert.Equal(t, s.kind, span.SpanKind)
	assert.Equal(t, begin, span.StartTime)
	assert.Equal(t, begin.Add(o.took), span.EndTime)
	assert.Equal(t, o.spanAttributes(s), attrsOf(span.Attributes))
	assert.Equal(t, o.message, span.Status.Description)
	if o.failure != "" {
		assert.Equal(t, codes.Error, span.Status.Code)
	} else {
		assert.Equal(t, codes.Unset, span.Status.Code)
	}
	o.checkEvents(t, span)
	f.checkNotInSpans("10.0.0.7")
	o.checkMetrics(t, s, f.collect())
}

// commonAttributes returns the attributes that both the span and the metrics have.
func (o outcome) commonAttributes(s side) attrs {
	want := attrs{"gen_ai.tool.name": "x", "gen_ai.operation.name": "execute_tool"}
	if s.request.Method != "" {
		want["mcp.method.name"] = "tools/call"
	}
	if o.code != "" {
		want["resilience.code"], want["resilience.counted"] = o.code, o.counted
	}
	switch {
	case o.failure == "":
	case s.request.Method != "":
		want["error.type"] = "tool_error"
	default:
		want["error.type"] = o.failure
	}
	if o.pending {
		want["resilience.unfinished"] = true
	}
	return want
}

func (o outcome) spanAttributes(s side) attrs {
	want := o.commonAttributes(s)
	want["resilience.attempts"] = o.attempts
	if s.request.Session != "" {
		want["mcp.session.id"] = "s1"
		want["mcp.protocol.version"] = "2025-11-25"
	}
	if o.timeout != 0 {
		want["resilience.timeout"] = o.timeout
	}
	if o.after != 0 {
		want["resilience.retry_after"] = o.after
	}
	return want
}

// checkEvents checks the events of the retries and of the panic.
func (o outcome) checkEvents(t *testing.T, span tracetest.SpanStub) {
	t.Helper()
	events := span.Events
	require.GreaterOrEqual(t, len(events), len(o.retries))
	for i, r := range o.retries {
		want := attrs{"resilience.attempt": r.attempt, "resilience.delay": r.delay, "error.type": r.failure}
		assert.Equal(t, "resilience.retry", events[i].Name)
		assert.Equal(t, want, attrsOf(events[i].Attributes))
		assert.Less(t, events[i].Time, span.EndTime)
	}

	rest := events[len(o.retries):]
	if o.panics == "" {
		assert.Empty(t, rest)
		return
	}
	require.Len(t, rest, 1)
	assert.Equal(t, "exception", rest[0].Name)
	assert.Equal(t, span.EndTime, rest[0].Time)
	got := attrsOf(rest[0].Attributes)
	assert.Equal(t, o.panics, got["exception.type"])
	assert.Contains(t, got["exception.stacktrace"], "outcomes_test.go")
}

// checkMetrics checks that got holds the metrics of the call and no others.
func (o outcome) checkMetrics(t *testing.T, s side, got map[string][]point) {
	t.Helper()
	common := o.commonAttributes(s)
	if o.code == "QUOTA" {
		common["resilience.code"] = "_OTHER"
	}
	want := map[string][]point{
		s.duration:                 {{common, 1, o.took.Seconds()}},
		"resilience.call.attempts": {{common, 1, float64(o.attempts)}},
	}
	if n := len(o.retries); n > 0 {
		labels := attrs{"gen_ai.tool.name": "x", "error.type": o.retries[0].failure}
		want["resilience.retries"] = []point{{attrs: labels, value: float64(n)}}
	}

	delete(got, "resilience.breaker.changes")
	delete(got, "resilience.late_result.delay") // a tool that ends with its context may be late by 0s
	assert.Equal(t, want, got)
}
