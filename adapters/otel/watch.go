package otelresilience

import (
	"context"
	"errors"
	"slices"

	"github.com/seed8d1e2389/resilience"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Watch reports g's Health whenever metrics are collected: the states of its breakers (but not those of keys), the
// calls in flight and the abandoned attempts that are still running. The attributes, if any,
// are added to each of these series. They distinguish guards whose tools have the same names.
//
// Call stop to end the reports. Until then g is kept in memory. stop may be called any number
// of times and concurrently. It is an error if g is nil or the MeterProvider refuses to call back.
func (t *Telemetry) Watch(g *resilience.Guard, attrs ...attribute.KeyValue) (stop func(), err error) {
	if g == nil {
		return nil, errors.New("resilience: otel: nil *Guard")
	}

	w := watch{t, g, append([]attribute.KeyValue(nil), attrs...)}
	r, err := t.meter.RegisterCallback(w.observe, t.breakerState, t.inFlight, t.abandoned)
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

// observe reports the guard's Health to o. Tools that are listed come first, and all of them always in the same order,
// since an SDK may have a limit of series. A tool that isn't listed may have the name of a breaker that others share.
func (w watch) observe(_ context.Context, o metric.Observer) error {
	all := w.guard.Health()
	isListed := func(h resilience.Health) bool { return h.Listed }
	isOther := func(h resilience.Health) bool { return !h.Listed }
	all = append(slices.DeleteFunc(slices.Clone(all), isOther), slices.DeleteFunc(all, isListed)...)

	seen := make(map[string]bool) // breakers, which tools may share
	for _, h := range all {
		tool := w.with(text(keyTool, h.Tool))
		o.ObserveInt64(w.inFlight, int64(h.InFlight), tool)
		o.ObserveInt64(w.abandoned, int64(h.Abandoned), tool)
		if !seen[h.Breaker] {
			seen[h.Breaker] = true
			w.observeBreaker(o, h)
		}
	}
	return nil
}

func (w watch) observeBreaker(o metric.Observer, h resilience.Health) {
	for _, state := range []resilience.State{
		resilience.StateClosed, resilience.StateHalfOpen, resilience.StateOpen, resilience.StateIsolated,
	} {
		var value int64
		if h.State == state {
			value = 1
		}
		o.ObserveInt64(w.breakerState, value,
			w.with(text(keyBreaker, h.Breaker), keyBreakerState.String(string(state))))
	}
}

func (w watch) with(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(attrs, w.attrs...)...)
}
