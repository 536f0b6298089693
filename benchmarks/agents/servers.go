package agents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sony/gobreaker/v2"

	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
)

// The settings of all servers but the bare one. Retries are by each one's own defaults, but without jitter, so that
// a seed repeats. No stack retries add_entry after a failure that may have had an effect.
const (
	callTimeout = 30 * time.Second // as the first example of our README has it
	failures    = 5                // in a row open the breaker of a backend
	cooldown    = 30 * time.Second
)

// A kind is a kind of server. Its start returns a server whose requests go through the world, and what stops it.
type kind struct {
	name  string
	start func(*world) (server *mcp.Server, stop func())
}

var kinds = []kind{
	{"bare", startBare},
	{"by hand", startByHand},
	{"by hand, with words", startWithWords},
	{"failsafe-go", startFailsafe},
	{"guard", startGuard},
	{"guard with Probe", startProbing},
}

// startBare starts a server that has no timeout, no breaker and no retries.
func startBare(w *world) (*mcp.Server, func()) {
	return newServer(fetchBy(&http.Client{Transport: w})), func() {}
}

// startByHand starts what a competent engineer writes in an afternoon: a breaker for each backend, a timeout for each
// call, and retries for what may be repeated. Its errors are those of the libraries.
func startByHand(w *world) (*mcp.Server, func()) { return newServer(fetchByHand(w)), func() {} }

// startWithWords starts the same, but for errors that tell an agent what to do next, where it matters most: so one
// sees what of the guard's worth is its words.
func startWithWords(w *world) (*mcp.Server, func()) {
	fetch := fetchByHand(w)
	return newServer(func(ctx context.Context, t tool, url string) (string, error) {
		text, err := fetch(ctx, t, url)
		return text, withWords(t, err)
	}), func() {}
}

// withWords says to an agent what the guard says in other words.
func withWords(t tool, err error) error {
	if err == nil {
		return nil
	}

	refused := errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "429")
	switch {
	case errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests):
		const format = "%w. Do not call this tool before %.0f seconds have passed; go on with other tools meanwhile"
		return fmt.Errorf(format, err, cooldown.Seconds())
	case t.method == http.MethodPost && !refused:
		return fmt.Errorf("%w. The entry may have been added: check before you add it again", err)
	}
	return err
}

func fetchByHand(w *world) fetcher {
	breakers := map[string]*gobreaker.CircuitBreaker[string]{}
	for _, host := range hosts {
		breakers[host] = gobreaker.NewCircuitBreaker[string](gobreaker.Settings{
			Timeout:     cooldown,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failures },
		})
	}

	plain := fetchBy(&http.Client{Transport: w})
	return func(ctx context.Context, t tool, url string) (string, error) {
		return breakers[t.host].Execute(func() (string, error) {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			if t.method == http.MethodPost {
				return plain(ctx, t, url)
			}
			delays := backoff.NewExponentialBackOff(backoff.WithRandomizationFactor(0)) // 500ms, 750ms, …
			return backoff.RetryWithData(func() (string, error) { return plain(ctx, t, url) },
				backoff.WithContext(backoff.WithMaxRetries(delays, 3), ctx))
		})
	}
}

// startFailsafe starts a server whose client has failsafe-go's policies for HTTP. The retry policy makes two retries
// and waits as a Retry-After says, which are its defaults; its delays are those of its example. So does the breaker, as
// its documentation has it, if the failure that opens it says.
func startFailsafe(w *world) (*mcp.Server, func()) {
	repeatable, once := map[string]fetcher{}, map[string]fetcher{}
	for _, host := range hosts {
		retry := failsafehttp.NewRetryPolicyBuilder().
			WithBackoff(time.Second, 10*time.Second).
			AbortOnErrors(circuitbreaker.ErrOpen).
			Build()
		breaker := circuitbreaker.NewBuilder[*http.Response]().
			HandleIf(func(res *http.Response, err error) bool {
				return err != nil || res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500
			}).
			WithFailureThreshold(failures).
			WithDelay(cooldown).
			WithDelayFunc(failsafehttp.DelayFunc).
			Build()

		repeatable[host] = fetchThrough(w, retry, breaker)
		once[host] = fetchThrough(w, breaker)
	}

	return newServer(func(ctx context.Context, t tool, url string) (string, error) {
		if t.method == http.MethodPost {
			return once[t.host](ctx, t, url)
		}
		return repeatable[t.host](ctx, t, url)
	}), func() {}
}

// fetchThrough returns a fetcher whose client has the policies. Its timeout is that of the whole call, so that it ends
// before the agent's client gives up. It has an executor of its own, since a Timeout around a RetryPolicy with a
// Retry-After is a data race in failsafe-go 0.9.8.
func fetchThrough(w *world, policies ...failsafe.Policy[*http.Response]) fetcher {
	fetch := fetchBy(&http.Client{Transport: failsafehttp.NewRoundTripper(w, policies...)})
	limited := failsafe.With(timeout.New[string](callTimeout))
	return func(ctx context.Context, t tool, url string) (string, error) {
		return limited.WithContext(ctx).GetWithExecution(func(exec failsafe.Execution[string]) (string, error) {
			return fetch(exec.Context(), t, url)
		})
	}
}

// startGuard starts a server that is guarded as our README says: the tools' effects, the breaker that tools of a
// backend share, a timeout below that of the clients, and resilience.Transport.
func startGuard(w *world) (*mcp.Server, func()) { return startGuarded(w, guardConfig()) }

func guardConfig() resilience.Config {
	return resilience.Config{
		Timeouts: resilience.Timeouts{resilience.Quick: callTimeout},
		Tools: map[string]resilience.Tool{
			readRecord.name:   {Effect: resilience.ReadOnly, Breaker: catalog},
			addEntry.name:     {Effect: resilience.NonIdempotent, Breaker: ledger},
			countEntries.name: {Effect: resilience.ReadOnly, Breaker: ledger},
			setStatus.name:    {Effect: resilience.Idempotent, Breaker: board},
			getStatus.name:    {Effect: resilience.ReadOnly, Breaker: board},
		},
		Retry: resilience.Retry{Backoff: resilience.Backoff{Jitter: resilience.NoJitter}},
	}
}

func startGuarded(w *world, cfg resilience.Config) (*mcp.Server, func()) {
	guard := resilience.Must(resilience.New(cfg))
	server := newServer(fetchBy(&http.Client{Transport: resilience.Transport(w)}))
	gosdk.Protect(server, guard)
	return server, func() { _, _ = guard.Close(context.Background()) }
}

// startProbing starts a guarded server whose breakers ask their backends whether they work again.
func startProbing(w *world) (*mcp.Server, func()) {
	cfg := guardConfig()
	cfg.Breakers = map[string]resilience.BreakerConfig{}
	for _, host := range hosts {
		probe := resilience.ProbeURL("http://"+host+"/healthz", &http.Client{Transport: w})
		cfg.Breakers[host] = resilience.BreakerConfig{Probe: probe}
	}
	return startGuarded(w, cfg)
}
