package otelresilience_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
)

func TestMadeUpNameIsInNoSpanNameAndOnNoMetric(t *testing.T) {
	const madeUp = "made up \xff"
	unknown := resilience.ForRequest(resilience.Request{Unknown: true})
	unknownOnServer := resilience.ForRequest(resilience.Request{RequestInfo: serverRequest, Unknown: true})
	for name, tc := range map[string]struct {
		tool string
		opts []resilience.Option
		span string
	}{
		"made up":               {madeUp, []resilience.Option{unknown}, "execute_tool"},
		"made up, on a request": {madeUp, []resilience.Option{unknownOnServer}, "tools/call"},
		"empty":                 {"", nil, "execute_tool"},
	} {
		runInBubble(t, name, func(t *testing.T) {
			f := newFixture(t, resilience.Config{})
			_ = f.call(t.Context(), tc.tool, succeed, tc.opts...)
			got := attrsOf(f.span(tc.span).Attributes)["gen_ai.tool.name"]
			assert.Equal(t, strings.ToValidUTF8(tc.tool, "\uFFFD"), got)
			for name, points := range f.collect() {
				require.Len(t, points, 1, name)
				assert.Equal(t, "(others)", points[0].attrs["gen_ai.tool.name"])
			}
		})
	}
}

func TestLateResultIsAChildOfTheCallsSpan(t *testing.T) {
	for name, tc := range map[string]struct {
		end   func() (int, error)
		code  string
		panic bool
	}{
		"succeeds": {func() (int, error) { return 1, nil }, "", false},
		"fails":    {func() (int, error) { return 0, errBoom }, "TOOL_FAILED", false},
		"panics":   {func() (int, error) { panic(errBoom) }, "TOOL_FAILED", true},
		"asks to wait": {func() (int, error) {
			return 0, &resilience.Error{Code: resilience.CodeOverloaded, RetryAfter: time.Minute}
		}, "OVERLOADED", false},
	} {
		runInBubble(t, name, func(t *testing.T) {
			f := newFixture(t, resilience.Config{})
			begin := time.Now()
			err := f.call(t.Context(), "x", func(context.Context) (int, error) {
				time.Sleep(90 * time.Second)
				return tc.end()
			}, forRequest(serverRequest))
			require.ErrorIs(t, err, resilience.CodeTimeout)
			time.Sleep(time.Hour)

			call, late := f.span("tools/call x"), f.span("resilience.late_result")
			assert.Equal(t, begin.Add(time.Minute), call.EndTime)
			assert.Equal(t, call.SpanContext.SpanID(), late.Parent.SpanID())
			assert.Equal(t, call.SpanContext.TraceID(), late.SpanContext.TraceID())
			assert.Equal(t, begin.Add(60*time.Second), late.StartTime)
			assert.Equal(t, begin.Add(90*time.Second), late.EndTime)
			assert.Equal(t, codes.Unset, late.Status.Code)
			if tc.panic {
				require.Len(t, late.Events, 1)
				assert.Equal(t, late.EndTime, late.Events[0].Time)
			} else {
				assert.Empty(t, late.Events)
			}
			f.checkNotInSpans("10.0.0.7")

			onMetric := attrs{"gen_ai.tool.name": "x"}
			onSpan := attrs{"gen_ai.tool.name": "x", "gen_ai.operation.name": "execute_tool"}
			if tc.code != "" {
				onMetric["resilience.code"], onSpan["resilience.code"] = tc.code, tc.code
			}
			if name == "asks to wait" {
				onSpan["resilience.retry_after"] = 60.0
			}
			assert.Equal(t, onSpan, attrsOf(late.Attributes))
			assert.Equal(t, []point{{onMetric, 1, 30}}, f.collect()["resilience.late_result.delay"])
		})
	}
}

// Events that reach the observer late have the times at which they happened.
func TestTimesAreThoseOfTheEvents(t *testing.T) {
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
				return 0, resilience.MarkNoEffect(errBoom)
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

		returned := begin.Add(1150*time.Millisecond + 2*time.Minute)
		assert.Equal(t, ended, late.StartTime)
		assert.Equal(t, returned, late.EndTime)
		require.Len(t, late.Events, 1)
		assert.Equal(t, returned, late.Events[0].Time)
	})
}

// The name of a tool and what a tool says may be as long as a client likes.
func TestNothingOfASpanIsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		huge := strings.Repeat("x", 8<<20)
		f := newFixture(t, resilience.Config{})
		info := resilience.RequestInfo{Method: huge, Session: huge}
		request := resilience.ForRequest(resilience.Request{RequestInfo: info})
		require.Error(t, f.call(t.Context(), huge, failWith(&resilience.Error{Message: huge}), request))

		s := f.spans.GetSpans()[0]
		assert.LessOrEqual(t, len(s.Status.Description), 1024)
		assert.LessOrEqual(t, len(s.Name), 256)
		for _, a := range s.Attributes {
			assert.LessOrEqual(t, len(a.Value.Emit()), 256, a.Key)
		}
	})
}
