package otelresilience_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A hangingExporter hangs until it is released.
type hangingExporter struct {
	*tracetest.InMemoryExporter
	asked   chan struct{}
	release chan struct{}
}

func (e hangingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	select {
	case e.asked <- struct{}{}:
	default:
	}
	<-e.release
	return e.InMemoryExporter.ExportSpans(ctx, spans)
}

// An exporter that hangs in a processor that waits for it holds up the observer, but no call.
func TestSynchronousExporterHangs(t *testing.T) {
	var log recorder
	e := hangingExporter{tracetest.NewInMemoryExporter(), make(chan struct{}, 1), make(chan struct{})}
	f := newFixture(t, resilience.Config{Log: log.log()}, sdktrace.WithSyncer(e))
	const n = 3000
	for range n {
		_, err := resilience.Do(t.Context(), f.guard, "x", ok)
		require.NoError(t, err)
	}
	<-e.asked
	assert.Equal(t, uint64(1), f.collect()["resilience.call.duration"][0].count, "a call is counted before its span is exported")
	close(e.release)
	flush(t, f.guard)
	require.NoError(t, f.call(t.Context(), "x", ok))
	told := len(e.GetSpans())
	assert.Less(t, told, n)
	assert.EqualValues(t, told, f.collect()["resilience.call.duration"][0].count)
	said := strings.Join(log.all(), "")
	assert.Equal(t, 1, strings.Count(said, "too slow or blocks"), said)
	assert.Equal(t, 1, strings.Count(said, "an observer has caught up"), said)
}
