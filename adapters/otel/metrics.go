package otelresilience

import (
	"context"
	"errors"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

type instruments struct {
	server, client, call metric.Float64Histogram // durations
	attempts             metric.Int64Histogram
	retries              metric.Int64Counter
	lateDelay            metric.Float64Histogram
	changes              metric.Int64Counter
	state                metric.Int64ObservableGauge
	inFlight, abandoned  metric.Int64ObservableUpDownCounter
}

func newInstruments(m metric.Meter) (instruments, error) {
	var i instruments
	var errs [10]error
	// The boundaries are those of the conventions.
	buckets := metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
	i.server, errs[0] = m.Float64Histogram("mcp.server.operation.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long it took to answer an MCP request."))
	i.client, errs[1] = m.Float64Histogram("mcp.client.operation.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long it took to get an answer to an MCP request."))
	i.call, errs[2] = m.Float64Histogram("resilience.call.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long calls took that belong to no MCP request."))
	i.attempts, errs[3] = m.Int64Histogram("resilience.call.attempts", metric.WithUnit("{attempt}"),
		metric.WithExplicitBucketBoundaries(0, 1, 2, 3, 4, 5, 10),
		metric.WithDescription("How often the tool was called for one call."))
	i.retries, errs[4] = m.Int64Counter("resilience.retries", metric.WithUnit("{retry}"),
		metric.WithDescription("Attempts that failed and were to be repeated, by what failed."))
	i.lateDelay, errs[5] = m.Float64Histogram("resilience.late_result.delay", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long attempts ran on after they were given up on."))
	i.changes, errs[6] = m.Int64Counter("resilience.breaker.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Changes of state of a breaker, by the new state."))
	i.state, errs[7] = m.Int64ObservableGauge("resilience.breaker.state", metric.WithUnit("{breaker}"),
		metric.WithDescription("1 for the state that a breaker is in, 0 for the others."))
	i.inFlight, errs[8] = m.Int64ObservableUpDownCounter("resilience.calls.in_flight", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that have not been answered yet."))
	i.abandoned, errs[9] = m.Int64ObservableUpDownCounter("resilience.calls.abandoned", metric.WithUnit("{call}"),
		metric.WithDescription("Attempts that were given up on and still run."))
	return i, errors.Join(errs[:]...)
}

func (i *instruments) countEnd(c call, e resilience.CallEnd) {
	attrs := make([]attribute.KeyValue, 0, 6)
	attrs = append(attrs, keyOperation.String(executeTool), text(keyTool, e.Label))
	duration := i.call
	if c.method != "" {
		attrs = append(attrs, text(keyMethod, c.method))
		duration = i.server
		if c.client {
			duration = i.client
		}
	}
	if e.Unfinished {
		attrs = append(attrs, keyUnfinished.Bool(true))
	}
	if e.Err != nil {
		attrs = append(attrs, keyCode.String(bounded(e.Err.Code)))
	}
	if failure := c.errorType(e.Err); failure != "" {
		attrs = append(attrs, keyError.String(failure))
	}
	ctx, set := c.bare(), metric.WithAttributeSet(attribute.NewSet(attrs...))
	duration.Record(ctx, e.Duration.Seconds(), set)
	i.attempts.Record(ctx, int64(e.Attempts), set)
}

func (i *instruments) countRetry(c call, e resilience.CallRetry) {
	i.retries.Add(c.bare(), 1, metric.WithAttributes(text(keyTool, e.Label), keyError.String(codeOf(e.Tool, e.Err))))
}

func (i *instruments) countLate(c call, e resilience.LateResult) {
	attrs := []attribute.KeyValue{text(keyTool, e.Label)}
	if e.Err != nil {
		attrs = append(attrs, keyCode.String(codeOf(e.Tool, e.Err)))
	}
	i.lateDelay.Record(c.bare(), e.Late.Seconds(), metric.WithAttributes(attrs...))
}

func (i *instruments) countChange(e resilience.BreakerChange) {
	i.changes.Add(context.Background(), 1, metric.WithAttributes(
		text(keyBreaker, e.Breaker), keyBreakerState.String(e.To.String())))
}

// Watch reports g's Health whenever metrics are collected: the states of its breakers, the
// calls in flight and those that were given up on. The attributes, if any, are put on all
// of that: who watches several guards with tools of the same names tells them apart so.
//
// Call stop to end it; until then g is kept in memory. stop may be called any number of
// times, from any goroutine. A nil g is an error.
func (t *Telemetry) Watch(g *resilience.Guard, attrs ...attribute.KeyValue) (stop func(), err error) {
	if g == nil {
		return nil, errors.New("resilience: otel: nil *Guard")
	}
	w := watch{t, g, append([]attribute.KeyValue(nil), attrs...)}
	r, err := t.meter.RegisterCallback(w.observe, t.state, t.inFlight, t.abandoned)
	if err != nil {
		return nil, err
	}
	return func() {
		if err := r.Unregister(); err != nil {
			otel.Handle(err)
		}
	}, nil
}

type watch struct {
	*Telemetry
	guard *resilience.Guard
	attrs []attribute.KeyValue
}

func (w watch) observe(_ context.Context, o metric.Observer) error {
	seen := make(map[string]bool) // tools may share a breaker
	for _, h := range w.guard.Health() {
		tool := w.with(text(keyTool, h.Tool))
		o.ObserveInt64(w.inFlight, int64(h.InFlight), tool)
		o.ObserveInt64(w.abandoned, int64(h.Abandoned), tool)
		if seen[h.Breaker] {
			continue
		}
		seen[h.Breaker] = true
		for _, state := range []resilience.State{resilience.StateClosed, resilience.StateHalfOpen, resilience.StateOpen} {
			var is int64
			if h.State == state {
				is = 1
			}
			o.ObserveInt64(w.state, is, w.with(text(keyBreaker, h.Breaker), keyBreakerState.String(state.String())))
		}
	}
	return nil
}

func (w watch) with(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(attrs, w.attrs...)...)
}
