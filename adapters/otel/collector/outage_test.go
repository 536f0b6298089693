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

func TestDeadCollectorIsLoggedOnce(t *testing.T) {
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	var log, guardLog recorder
	failed := countErrors(t, otelresilience.LogErrorsOnce(log.log()))
	g := newExportingGuard(t, dead.URL, time.Millisecond, time.Minute, resilience.Config{Log: guardLog.log()})
	g.call(1000)
	failed.wait(t, 20)

	_, _ = g.shutdown(t.Context())
	checkNoGoroutines(t)
	assert.Len(t, log.all(), 1)
	assert.Contains(t, log.all()[0], "refused")
	assert.Empty(t, guardLog.all(), "the observer kept up")
}

// The collector answers no request before all calls have been made.
func TestHangingCollectorDelaysNoCall(t *testing.T) {
	received, release := make(chan struct{}, 1000), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		received <- struct{}{}
		<-release
	}))
	defer s.Close()
	var log, guardLog recorder
	failed := countErrors(t, otelresilience.LogErrorsOnce(log.log()))
	cfg := resilience.Config{Log: guardLog.log()}
	g := newExportingGuard(t, s.URL, time.Millisecond, 100*time.Millisecond, cfg)
	g.call(100)
	<-received
	g.call(5000)
	assert.Empty(t, guardLog.all(), "the observer kept up")
	failed.wait(t, 3)

	close(release)
	_, _ = g.shutdown(t.Context())
	s.Close()
	checkNoGoroutines(t)
	assert.Len(t, log.all(), 1)
}
