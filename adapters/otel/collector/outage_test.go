package collector_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	otelresilience "github.com/seed8d1e2389/resilience/adapters/otel"
	"github.com/stretchr/testify/assert"
)

// A collector that is down costs the telemetry, and is reported once.
func TestCollectorDown(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	var log, guardLog recorder
	failed := countErrors(t, otelresilience.LogErrorsOnce(log.log()))
	x := export(t, down.URL, time.Millisecond, time.Minute, resilience.Config{Log: guardLog.log()})
	x.calls(1000)
	failed.wait(t, 20)

	_, _ = x.shutdown(t.Context())
	nothingRuns(t)
	assert.Len(t, log.all(), 1)
	assert.Contains(t, log.all()[0], "refused")
	assert.Empty(t, guardLog.all(), "the observer kept up")
}

// A collector that hangs holds up no call: it answers none before all have been made.
func TestCollectorHangs(t *testing.T) {
	asked, release := make(chan struct{}, 1000), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	defer s.Close()
	var log, guardLog recorder
	failed := countErrors(t, otelresilience.LogErrorsOnce(log.log()))
	x := export(t, s.URL, time.Millisecond, 100*time.Millisecond, resilience.Config{Log: guardLog.log()})
	x.calls(100)
	<-asked // and never answered, so long as calls are made
	x.calls(5000)
	assert.Empty(t, guardLog.all(), "the observer kept up")
	failed.wait(t, 3)

	close(release)
	_, _ = x.shutdown(t.Context())
	s.Close()
	nothingRuns(t)
	assert.Len(t, log.all(), 1)
}
