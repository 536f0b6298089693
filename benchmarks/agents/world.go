package agents

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The backends. A task reads from the catalog, and writes to one of the others.
const (
	catalog = "catalog" // GET /records/{task}
	ledger  = "ledger"  // POST appends an entry to /entries/{task}, GET counts them: written twice, it is there twice
	board   = "board"   // PUT sets /status/{task}, GET returns it: writing it again changes nothing
)

var hosts = []string{catalog, ledger, board}

// A world holds the backends, and what has been written to them. It is the http.RoundTripper through which a
// server sends its requests: the network and the backends in one.
type world struct {
	seed   uint64
	start  time.Time
	phases map[string][]phase // by host

	mu       sync.Mutex                 // guards what follows
	requests map[string]uint64          // by host
	unheard  int                        // requests of tools to a backend that was dead or hung
	probes   int                        // those of Probes
	written  map[string][]time.Duration // when the writes of each path take effect, since the start
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, start: time.Now(),
		phases: map[string][]phase{}, requests: map[string]uint64{}, written: map[string][]time.Duration{},
	}
	for i, host := range hosts {
		w.phases[host] = outage(seed, uint64(i))
	}
	return w
}

// RoundTrip takes a request to a backend, which does with it what its mode is when it arrives.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	now, phases := time.Since(w.start), w.phases[req.URL.Host]
	mode, end := phaseAt(phases, now)
	rng := w.arrive(req, mode)
	if mode == dead {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}

	f := fateOf(mode, now, end, diesAfter(phases, now), rng)
	if f.effect < never && req.Method != http.MethodGet {
		w.write(req.URL.Path, f.effect)
	}
	switch err := w.wait(req.Context(), f.until); {
	case err != nil:
		return nil, err
	case f.failure != nil:
		return nil, f.failure
	case mode == limited:
		return tooMany(req), nil
	}
	return w.answer(req, f.until), nil
}

// A fate is what becomes of a request.
type fate struct {
	effect  time.Duration // when it takes effect, whether or not its sender still waits then; or never
	until   time.Duration // when its sender learns how it ended
	failure error         // nil means that there is a reply
}

var (
	errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	errReply = io.EOF // as net/http has it if the connection is closed before a reply
)

// fateOf draws the fate of a request that arrives now. The mode ends at end, and the backend dies at death.
func fateOf(m mode, now, end, death time.Duration, rng *rand.Rand) fate {
	took := latency(rng)
	if m == slow {
		took *= slowdown
	}
	f := fate{effect: now + took, until: now + took}

	switch {
	case m == limited:
		f.effect = never
	case m == hanging:
		f.until, f.failure = end+spread(rng), errReset
		if rng.IntN(2) == 0 || f.effect > end {
			f.effect = never
		}
	case death <= f.until:
		f = fate{never, death + spread(rng), errReset}
	case m == lossy && rng.IntN(2) == 0:
		f.failure = errReply
	}
	return f
}

// arrive counts a request, and returns the generator of its latency and its luck.
func (w *world) arrive(req *http.Request, m mode) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case m != dead && m != hanging:
	case isProbe(req):
		w.probes++
	default:
		w.unheard++
	}

	host := req.URL.Host
	w.requests[host]++
	h := fnv.New64a()
	fmt.Fprint(h, host, w.requests[host])
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// counted returns how many requests of tools and of Probes have come to a backend that was dead or hung.
func (w *world) counted() (unheard, probes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unheard, w.probes
}

func isProbe(req *http.Request) bool { return req.URL.Path == "/healthz" }

// write lets a write of a path take effect at a time.
func (w *world) write(path string, at time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[path] = append(w.written[path], at)
}

// writes returns how many writes of a path have taken effect by a time.
func (w *world) writes(path string, by time.Duration) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.written[path] {
		if at <= by {
			n++
		}
	}
	return n
}

// wait waits until a time. It returns the cause of the end of ctx if that is sooner, as net/http does.
func (w *world) wait(ctx context.Context, until time.Duration) error {
	timer := time.NewTimer(until - time.Since(w.start))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answer returns the reply to a request: to a GET, how often its path has been written.
func (w *world) answer(req *http.Request, now time.Duration) *http.Response {
	text := "ok"
	if req.Method == http.MethodGet && !isProbe(req) {
		text = strconv.Itoa(w.writes(req.URL.Path, now))
	}
	return reply(req, http.StatusOK, text)
}

func tooMany(req *http.Request) *http.Response {
	seconds := strconv.Itoa(int(limitWindow.Seconds()))
	res := reply(req, http.StatusTooManyRequests, "rate limit exceeded, retry after "+seconds+" seconds")
	res.Header.Set("Retry-After", seconds)
	return res
}

func reply(req *http.Request, status int, text string) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
		Request: req,
	}
}

func latency(rng *rand.Rand) time.Duration {
	return time.Duration(float64(latencyMedian) * math.Exp(latencySpread*rng.NormFloat64()))
}

// spread keeps connections that break together from doing so at the same instant, in which the order of what
// follows would be left to chance.
func spread(rng *rand.Rand) time.Duration { return time.Duration(rng.Int64N(int64(time.Millisecond))) }
