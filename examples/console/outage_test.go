package console

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/console"
	"github.com/stretchr/testify/require"
)

// A workload is how a tool is called in an outage.
type workload struct {
	tool, key string
	every     time.Duration // between two calls, on average
	takes     time.Duration // half of the calls take less
	breaks    time.Duration // when its backend breaks; 0 if it doesn't
	hangs     bool          // its backend then hangs, instead of refusing connections
}

var workloads = []workload{
	{tool: "cypher", every: 2 * time.Second, takes: 180 * time.Millisecond, breaks: 7 * time.Minute},
	{tool: "impact", every: 9 * time.Second, takes: 900 * time.Millisecond, breaks: 7 * time.Minute},
	{tool: "search", key: "eu-west", every: 3 * time.Second, takes: 60 * time.Millisecond},
	{tool: "search", key: "us-east", every: 4 * time.Second, takes: 70 * time.Millisecond, breaks: 8 * time.Minute},
	{tool: "summarize", every: 8 * time.Second, takes: time.Second, breaks: 9*time.Minute + 5*time.Second, hangs: true},
	{tool: "fetch", every: 5 * time.Second, takes: 300 * time.Millisecond},
	{tool: "read", every: 700 * time.Millisecond, takes: 4 * time.Millisecond},
	{tool: "write", every: 4 * time.Second, takes: 15 * time.Millisecond},
	{tool: "list_issues", every: 6 * time.Second, takes: 240 * time.Millisecond},
	{tool: "create_issue", every: 25 * time.Second, takes: 410 * time.Millisecond},
}

// outage returns what /api/health says after ten minutes, in fake time.
func outage(t *testing.T) (document []byte) {
	synctest.Test(t, func(t *testing.T) {
		page, err := console.New(console.Config{
			Title: "workspace-mcp", ShowCauses: true,
			Authorize: func(*http.Request) bool { return true },
		})
		require.NoError(t, err)
		guard := resilience.Must(resilience.New(resilience.Config{
			Timeouts: resilience.Timeouts{resilience.Quick: 10 * time.Second, resilience.Heavy: 10 * time.Second},
			Tools: map[string]resilience.Tool{
				"cypher": {Breaker: "neo4j"}, "impact": {Breaker: "neo4j"}, "search": {}, "summarize": {}, "fetch": {},
				"read": {}, "write": {}, "list_issues": {}, "create_issue": {},
			},
			Breakers:  map[string]resilience.BreakerConfig{"summarize": {Failures: 20}},
			Retry:     resilience.Retry{MaxRetries: -1},
			Observers: []resilience.Observer{page.Observer()},
		}))
		handler, err := page.Handler(guard)
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i, w := range workloads {
			running.Go(func() { w.run(ctx, guard, rand.New(rand.NewPCG(1, uint64(i)))) })
		}
		time.Sleep(5 * time.Minute)
		guard.Breaker("fetch").Isolate("the proxy is being replaced, back at 00:20")
		time.Sleep(5*time.Minute + 7*time.Second)

		require.NoError(t, guard.Flush(t.Context()))
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/api/health", nil))
		document = recorder.Body.Bytes()
		cancel()
		running.Wait()
		time.Sleep(hang) // until the abandoned calls have ended
	})
	return document
}

const hang = 2 * time.Minute

// refused is what a client says whose backend is down.
var refused = &net.OpError{
	Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 2, 0, 17), Port: 7687}, Err: syscall.ECONNREFUSED,
}

// run makes calls until ctx ends.
func (w workload) run(ctx context.Context, guard *resilience.Guard, random *rand.Rand) {
	start := time.Now()
	for ctx.Err() == nil {
		takes := time.Duration(float64(w.takes) * (0.4 + random.ExpFloat64()))
		hangs := w.hangs && random.IntN(3) > 0 // drawn here, because an abandoned call goes on
		_, _ = resilience.Do(ctx, guard, w.tool, func(ctx context.Context) (int, error) {
			broken := w.breaks > 0 && time.Since(start) > w.breaks
			switch {
			case broken && hangs:
				time.Sleep(hang) // it ignores its context
				return 0, errors.New("too late")
			case broken && !w.hangs:
				return 0, refused
			}
			time.Sleep(takes)
			return 0, nil
		}, resilience.BreakerKey(w.key))

		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(float64(w.every) * (0.2 + random.ExpFloat64()))):
		}
	}
}
