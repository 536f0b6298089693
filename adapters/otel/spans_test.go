package otelresilience_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

var request = resilience.Request{Method: "tools/call", Session: "s1", Protocol: "2025-11-25"}

// Every outcome of a call, as a server, a client and a plain program have it.
func TestOutcomes(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	type retry struct {
		attempt int
		delay   float64
		failure string
	}
	for name, tc := range map[string]struct {
		ctx     context.Context
		before  func(*fixture)
		fn      func(context.Context) (int, error)
		opts    []resilience.Option
		code    string // "": success
		message string // the status; "": unset
		failure string // error.type without a request
		after   time.Duration
		took    time.Duration
		attrs   attrs // further ones of the span
		retries []retry
		panics  string
	}{
		"success": {fn: ok, attrs: attrs{"resilience.attempts": int64(1), "resilience.limit": 60.0}},
		"success at last": {
			fn: func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) < 3 {
					return fail(ctx)
				}
				return ok(ctx)
			},
			took:    300 * time.Millisecond,
			attrs:   attrs{"resilience.attempts": int64(3), "resilience.limit": 60.0},
			retries: []retry{{1, 0.1, "TOOL_FAILED"}, {2, 0.2, "TOOL_FAILED"}},
		},
		"retry exhausted": {
			fn:   func(context.Context) (int, error) { return 0, context.DeadlineExceeded },
			code: "RETRY_EXHAUSTED", failure: "RETRY_EXHAUSTED", message: "Tool 'x' failed after 4 attempts",
			took:    700 * time.Millisecond,
			attrs:   attrs{"resilience.attempts": int64(4), "resilience.limit": 60.0},
			retries: []retry{{1, 0.1, "TIMEOUT"}, {2, 0.2, "TIMEOUT"}, {3, 0.4, "TIMEOUT"}},
		},
		"failure": {
			fn:   func(context.Context) (int, error) { return 0, resilience.MarkPermanent(errBoom) },
			code: "TOOL_FAILED", failure: "TOOL_FAILED", message: "Tool 'x' failed",
			attrs: attrs{"resilience.attempts": int64(1), "resilience.limit": 60.0},
		},
		"a code of the tool's own": {
			fn: func(context.Context) (int, error) {
				return 0, resilience.MarkPermanent(&resilience.Error{Code: "QUOTA", Message: "no \xff more", RetryAfter: 90 * time.Second})
			},
			code: "QUOTA", failure: "_OTHER", message: "no \uFFFD more",
			attrs: attrs{"resilience.attempts": int64(1), "resilience.limit": 60.0, "resilience.retry_after": 90.0},
		},
		"timeout": {
			fn: obey, code: "TIMEOUT", failure: "TIMEOUT", message: "Tool 'x' exceeded timeout of 60s",
			took:  time.Minute,
			attrs: attrs{"resilience.attempts": int64(1), "resilience.limit": 60.0},
		},
		"a limit of its own": {
			fn: obey, opts: []resilience.Option{resilience.Limit(1500 * time.Millisecond)},
			code: "TIMEOUT", failure: "TIMEOUT", message: "Tool 'x' exceeded timeout of 1.5s",
			took:  1500 * time.Millisecond,
			attrs: attrs{"resilience.attempts": int64(1), "resilience.limit": 1.5},
		},
		"circuit open": {
			before: func(f *fixture) {
				for range 5 {
					done, err := f.guard.Breaker("x").Allow()
					require.NoError(f, err)
					done(errBoom)
				}
			},
			fn: ok, code: "CIRCUIT_OPEN", failure: "CIRCUIT_OPEN",
			message: "Circuit breaker open due to repeated failures. Will retry in 30 seconds.",
			attrs:   attrs{"resilience.attempts": int64(0), "resilience.limit": 60.0, "resilience.retry_after": 30.0},
		},
		"canceled": {
			ctx: gone, fn: ok, code: "CANCELED",
			attrs: attrs{"resilience.attempts": int64(0)},
		},
		"validation": {
			fn: ok, opts: []resilience.Option{resilience.Limit(-1)},
			code: "VALIDATION_ERROR", failure: "VALIDATION_ERROR", message: "The limit of this call is -1ns: it must be positive",
			attrs: attrs{"resilience.attempts": int64(0)},
		},
		"not found": {
			code: "TOOL_NOT_FOUND", failure: "TOOL_NOT_FOUND", message: "Tool 'x' not found: its function is nil",
			attrs: attrs{"resilience.attempts": int64(0)},
		},
		"unfinished": {
			fn:    func(context.Context) (int, error) { return 0, resilience.ErrUnfinished },
			attrs: attrs{"resilience.attempts": int64(1), "resilience.limit": 60.0, "resilience.unfinished": true},
		},
		"panic": {
			fn: func(context.Context) (int, error) { panic(errBoom) }, panics: "*errors.errorString",
			code: "TOOL_FAILED", failure: "TOOL_FAILED", message: "Tool 'x' failed",
			attrs: attrs{"resilience.attempts": int64(1), "resilience.limit": 60.0},
		},
		"goexit": {
			fn:   func(context.Context) (int, error) { runtime.Goexit(); return 0, nil },
			code: "TOOL_FAILED", failure: "TOOL_FAILED", message: "Tool 'x' failed",
			attrs: attrs{"resilience.attempts": int64(1), "resilience.limit": 60.0},
		},
	} {
		for side, as := range map[string]struct {
			request  resilience.Request
			kind     trace.SpanKind
			duration string
		}{
			"server": {request, trace.SpanKindServer, "mcp.server.operation.duration"},
			"client": {resilience.Request{Method: "tools/call", Client: true}, trace.SpanKindClient, "mcp.client.operation.duration"},
			"plain":  {resilience.Request{}, trace.SpanKindInternal, "resilience.call.duration"},
		} {
			t.Run(name+"/"+side, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}}})
					if tc.before != nil {
						tc.before(f)
					}
					ctx := tc.ctx
					if ctx == nil {
						ctx = t.Context()
					}
					begin := time.Now()
					err := f.call(ctx, "x", tc.fn, append(tc.opts, resilience.ForRequest(as.request))...)
					want := maps.Clone(tc.attrs)
					want["gen_ai.tool.name"] = "x"
					want["gen_ai.operation.name"] = "execute_tool"
					spanName := "execute_tool x"
					if as.request.Method != "" {
						spanName = "tools/call x"
						want["mcp.method.name"] = "tools/call"
					}
					if as.request.Session != "" {
						want["mcp.session.id"] = "s1"
						want["mcp.protocol.version"] = "2025-11-25"
					}
					if tc.code != "" {
						assert.ErrorIs(t, err, resilience.Code(tc.code))
						want["resilience.code"] = tc.code
					}
					failure := tc.failure
					if failure != "" && as.request.Method != "" {
						failure = "tool_error"
					}
					if failure != "" {
						want["error.type"] = failure
					}
					s := f.span(spanName)
					assert.Equal(t, want, attrsOf(s.Attributes))
					assert.Equal(t, as.kind, s.SpanKind)
					assert.Equal(t, begin, s.StartTime)
					assert.Equal(t, begin.Add(tc.took), s.EndTime)
					assert.Equal(t, tc.message, s.Status.Description)
					if tc.failure != "" {
						assert.Equal(t, codes.Error, s.Status.Code)
					} else {
						assert.Equal(t, codes.Unset, s.Status.Code)
					}

					events := s.Events
					for _, r := range tc.retries {
						require.NotEmpty(t, events)
						e := events[0]
						events = events[1:]
						assert.Equal(t, "resilience.retry", e.Name)
						assert.Equal(t, attrs{"resilience.attempt": int64(r.attempt), "resilience.delay": r.delay, "error.type": r.failure}, attrsOf(e.Attributes))
						assert.Less(t, e.Time, s.EndTime)
					}
					if tc.panics != "" {
						require.Len(t, events, 1)
						assert.Equal(t, "exception", events[0].Name)
						assert.Equal(t, s.EndTime, events[0].Time)
						got := attrsOf(events[0].Attributes)
						assert.Equal(t, tc.panics, got["exception.type"])
						assert.Contains(t, got["exception.stacktrace"], "spans_test.go")
						assert.Len(t, got, 2)
						events = nil
					}
					assert.Empty(t, events)
					f.nowhere("10.0.0.7")

					onMetric := attrs{"gen_ai.tool.name": "x", "gen_ai.operation.name": "execute_tool"}
					for _, key := range []string{"mcp.method.name", "error.type", "resilience.unfinished"} {
						if v, ok := want[key]; ok {
							onMetric[key] = v
						}
					}
					switch {
					case tc.code == "QUOTA":
						onMetric["resilience.code"] = "_OTHER"
					case tc.code != "":
						onMetric["resilience.code"] = tc.code
					}
					got := f.collect()
					assert.Equal(t, []point{{onMetric, 1, tc.took.Seconds()}}, got[as.duration])
					delete(got, as.duration)
					assert.Equal(t, []point{{onMetric, 1, float64(want["resilience.attempts"].(int64))}}, got["resilience.call.attempts"])
					delete(got, "resilience.call.attempts")
					if len(tc.retries) > 0 {
						assert.Equal(t, []point{{attrs: attrs{"gen_ai.tool.name": "x", "error.type": tc.retries[0].failure}, value: float64(len(tc.retries))}}, got["resilience.retries"])
						delete(got, "resilience.retries")
					}
					delete(got, "resilience.breaker.changes")
					delete(got, "resilience.late_result.delay") // who obeys is late by nothing, or isn't
					assert.Empty(t, got)
				})
			})
		}
	}
}

// nowhere checks that no span holds the text of a cause.
func (f *fixture) nowhere(secret string) {
	f.Helper()
	for _, s := range f.spans.GetSpans() {
		assert.NotContains(f, s.Status.Description, secret)
		assert.NotContains(f, fmt.Sprint(attrsOf(s.Attributes)), secret)
		for _, e := range s.Events {
			assert.NotContains(f, fmt.Sprint(attrsOf(e.Attributes)), secret)
		}
	}
}

// A name that an agent made up is in no span's name and on no metric.
func TestMadeUpNames(t *testing.T) {
	for name, tc := range map[string]struct {
		tool string
		opts []resilience.Option
		span string
	}{
		"made up":      {"made up \xff", []resilience.Option{resilience.Shared()}, "execute_tool"},
		"for a client": {"made up \xff", []resilience.Option{resilience.Shared(), resilience.ForRequest(request)}, "tools/call"},
		"none":         {"", nil, "execute_tool"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, resilience.Config{})
				_ = f.call(t.Context(), tc.tool, ok, tc.opts...)
				got := attrsOf(f.span(tc.span).Attributes)["gen_ai.tool.name"]
				assert.Equal(t, strings.ToValidUTF8(tc.tool, "\uFFFD"), got)
				for name, points := range f.collect() {
					require.Len(t, points, 1, name)
					assert.Equal(t, "(others)", points[0].attrs["gen_ai.tool.name"])
				}
			})
		})
	}
}

// What comes of an attempt that was given up on is a child of the call's span.
func TestLateResult(t *testing.T) {
	for name, tc := range map[string]struct {
		end   func() (int, error)
		code  string
		panic bool
	}{
		"succeeds": {func() (int, error) { return 1, nil }, "", false},
		"fails":    {func() (int, error) { return 0, errBoom }, "TOOL_FAILED", false},
		"panics":   {func() (int, error) { panic(errBoom) }, "TOOL_FAILED", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, resilience.Config{})
				begin := time.Now()
				err := f.call(t.Context(), "x", func(context.Context) (int, error) {
					time.Sleep(90 * time.Second)
					return tc.end()
				}, resilience.ForRequest(request))
				require.ErrorIs(t, err, resilience.CodeTimeout)
				time.Sleep(time.Hour)

				call, late := f.span("tools/call x"), f.span("resilience.late_result")
				assert.Equal(t, begin.Add(time.Minute), call.EndTime)
				assert.Equal(t, call.SpanContext.SpanID(), late.Parent.SpanID())
				assert.Equal(t, call.SpanContext.TraceID(), late.SpanContext.TraceID())
				assert.Equal(t, begin.Add(60*time.Second), late.StartTime)
				assert.Equal(t, begin.Add(90*time.Second), late.EndTime)
				assert.Equal(t, codes.Unset, late.Status.Code)
				want, onMetric := attrs{"gen_ai.tool.name": "x", "gen_ai.operation.name": "execute_tool"}, attrs{"gen_ai.tool.name": "x"}
				if tc.code != "" {
					want["resilience.code"], onMetric["resilience.code"] = tc.code, tc.code
				}
				assert.Equal(t, want, attrsOf(late.Attributes))
				if tc.panic {
					require.Len(t, late.Events, 1)
					assert.Equal(t, late.EndTime, late.Events[0].Time)
				} else {
					assert.Empty(t, late.Events)
				}
				f.nowhere("10.0.0.7")
				assert.Equal(t, []point{{onMetric, 1, 30}}, f.collect()["resilience.late_result.delay"])
			})
		})
	}
}

// What is told late has the times of what it tells of.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{})
		o := f.telemetry.Observer()
		f.guard = newGuard(t, resilience.Config{Observers: []resilience.Observer{{
			Start: func(ctx context.Context, e resilience.CallStart) context.Context {
				time.Sleep(50 * time.Millisecond)
				return o.Start(ctx, e)
			},
			Retry: func(ctx context.Context, e resilience.CallRetry) { time.Sleep(time.Hour); o.Retry(ctx, e) },
			End:   func(ctx context.Context, e resilience.CallEnd) { time.Sleep(time.Hour); o.End(ctx, e) },
			Late:  func(ctx context.Context, e resilience.LateResult) { time.Sleep(time.Hour); o.Late(ctx, e) },
		}}})
		begin := time.Now()
		_, err := resilience.Do(t.Context(), f.guard, "x", func(ctx context.Context) (int, error) {
			if resilience.Attempt(ctx) == 1 {
				time.Sleep(time.Second)
				return 0, resilience.MarkTransient(errBoom)
			}
			time.Sleep(2 * time.Minute)
			panic("p")
		})
		require.ErrorIs(t, err, resilience.CodeTimeout)
		ended := time.Now()
		time.Sleep(10 * time.Hour)
		call, late := f.span("execute_tool x"), f.span("resilience.late_result")
		assert.Equal(t, begin, call.StartTime)
		assert.Equal(t, ended, call.EndTime)
		require.Len(t, call.Events, 1)
		assert.Equal(t, begin.Add(1050*time.Millisecond), call.Events[0].Time)
		back := begin.Add(1150*time.Millisecond + 2*time.Minute)
		assert.Equal(t, ended, late.StartTime)
		assert.Equal(t, back, late.EndTime)
		require.Len(t, late.Events, 1)
		assert.Equal(t, back, late.Events[0].Time)
	})
}

// A call that isn't sampled is counted all the same.
func TestNotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{}, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
		require.Error(t, f.call(t.Context(), "x", func(ctx context.Context) (int, error) {
			time.Sleep(2 * time.Minute)
			return 0, resilience.MarkTransient(errBoom)
		}))
		time.Sleep(time.Hour)
		assert.Empty(t, f.spans.GetSpans())
		assert.Len(t, f.collect()["resilience.late_result.delay"], 1)
	})
}

type nasty struct{}

func (nasty) Error() string { panic("Error") }
func (nasty) As(any) bool   { panic("As") }

// Methods of a tool's errors may panic: the call has its span all the same.
func TestErrorThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resilience.Config{Tools: map[string]resilience.Tool{"x": {Effect: resilience.ReadOnly}}})
		require.Error(t, f.call(t.Context(), "x", func(context.Context) (int, error) { return 0, nasty{} }))
		s := f.span("execute_tool x")
		assert.Equal(t, codes.Error, s.Status.Code)
		assert.Len(t, s.Events, 3)
		assert.Equal(t, 3.0, f.collect()["resilience.retries"][0].value)
	})
}
