package otelresilience

import (
	"context"
	"errors"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

type instruments struct {
	serverDuration metric.Float64Histogram
	clientDuration metric.Float64Histogram
	callDuration   metric.Float64Histogram
	attempts       metric.Int64Histogram
	retries        metric.Int64Counter
	lateDelay      metric.Float64Histogram
	breakerChanges metric.Int64Counter

	breakerState metric.Int64ObservableGauge
	inFlight     metric.Int64ObservableUpDownCounter
	abandoned    metric.Int64ObservableUpDownCounter
}

func newInstruments(m metric.Meter) (instruments, error) {
	var i instruments
	var errs [10]error

	// The boundaries are those of the conventions.
	buckets := metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
	i.serverDuration, errs[0] = m.Float64Histogram("mcp.server.operation.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long it took to answer an MCP request."))
	i.clientDuration, errs[1] = m.Float64Histogram("mcp.client.operation.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long it took to get an answer to an MCP request."))
	i.callDuration, errs[2] = m.Float64Histogram("resilience.call.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long calls took that belong to no MCP request."))

	i.attempts, errs[3] = m.Int64Histogram("resilience.call.attempts", metric.WithUnit("{attempt}"),
		metric.WithExplicitBucketBoundaries(0, 1, 2, 3, 4, 5, 10),
		metric.WithDescription("How often the tool was called for one call."))
	i.retries, errs[4] = m.Int64Counter("resilience.retries", metric.WithUnit("{retry}"),
		metric.WithDescription("Attempts that failed and were to be repeated, by what failed."))
	i.lateDelay, errs[5] = m.Float64Histogram("resilience.late_result.delay", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long attempts continued to run after they were abandoned."))

	i.breakerChanges, errs[6] = m.Int64Counter("resilience.breaker.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Changes of state of a breaker, by the new state."))
	i.breakerState, errs[7] = m.Int64ObservableGauge("resilience.breaker.state", metric.WithUnit("{breaker}"),
		metric.WithDescription("1 for the state that a breaker is in, 0 for the others."))

	i.inFlight, errs[8] = m.Int64ObservableUpDownCounter("resilience.calls.in_flight", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that have not been answered yet."))
	i.abandoned, errs[9] = m.Int64ObservableUpDownCounter("resilience.calls.abandoned", metric.WithUnit("{call}"),
		metric.WithDescription("Attempts that were abandoned and are still running."))

	return i, errors.Join(errs[:]...)
}

func (i *instruments) recordEnd(c call, e resilience.CallEnd) {
	attrs := make([]attribute.KeyValue, 0, 7)
	attrs = append(attrs, keyOperation.String(executeTool), text(keyTool, e.Label))
	if c.method != "" {
		attrs = append(attrs, text(keyMethod, c.method))
	}
	if e.Unfinished {
		attrs = append(attrs, keyUnfinished.Bool(true))
	}
	if e.Err != nil {
		attrs = append(attrs, keyCode.String(bounded(e.Err.Code)), keyCounted.Bool(e.Counted))
	}
	if failure := c.errorType(e.Err); failure != "" {
		attrs = append(attrs, keyError.String(failure))
	}

	ctx, set := c.context(), metric.WithAttributeSet(attribute.NewSet(attrs...))
	i.durationOf(c).Record(ctx, e.Duration.Seconds(), set)
	i.attempts.Record(ctx, int64(e.Attempts), set)
}

// durationOf returns the histogram for the duration of calls like c.
func (i *instruments) durationOf(c call) metric.Float64Histogram {
	switch {
	case c.method == "":
		return i.callDuration
	case c.client:
		return i.clientDuration
	}
	return i.serverDuration
}

func (i *instruments) recordRetry(c call, e resilience.CallRetry) {
	i.retries.Add(c.context(), 1, metric.WithAttributes(
		text(keyTool, e.Label), keyError.String(codeOf(e.Tool, e.Err))))
}

func (i *instruments) recordLate(c call, e resilience.LateResult) {
	attrs := []attribute.KeyValue{text(keyTool, e.Label)}
	if e.Err != nil {
		attrs = append(attrs, keyCode.String(codeOf(e.Tool, e.Err)))
	}
	i.lateDelay.Record(c.context(), e.Late.Seconds(), metric.WithAttributes(attrs...))
}

func (i *instruments) recordBreaker(e resilience.BreakerChange) {
	i.breakerChanges.Add(context.Background(), 1, metric.WithAttributes(
		text(keyBreaker, e.Label), keyBreakerState.String(string(e.To)), keyBreakerCause.String(string(e.Cause))))
}
