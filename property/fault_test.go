package property

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"pgregory.net/rapid"
)

const toolTimeout = 60 * time.Second // the default

// behindSDK makes a call one behind an adapter, as far as blame is concerned.
var behindSDK = resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})

// A toolFunc is a tool.
type toolFunc = func(context.Context) (int, error)

// errOwn is what a tool makes of any failure: it tells nothing.
var errOwn = errors.New("something went wrong")

func works(context.Context) (int, error) { return 1, nil }

func failsWith(err error) toolFunc {
	return func(context.Context) (int, error) { return 0, err }
}

// An answer is what a backend does with a request.
type answer struct {
	status int
	header string // of a status, "Name: value"; empty means none
	err    error  // nil: it answers with status
	took   time.Duration
}

func (a answer) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(max(a.took, time.Nanosecond)): // see takes
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if a.err != nil {
		return nil, a.err
	}

	res := &http.Response{StatusCode: a.status, Header: make(http.Header), Body: http.NoBody, Request: req}
	if name, value, ok := strings.Cut(a.header, ": "); ok {
		res.Header.Set(name, value)
	}
	return res, nil
}

// refused reports whether the backend has certainly not done what the request asks for, and asks to come
// again.
func (a answer) refused() bool {
	limited := a.status == 429 && a.header == "Retry-After: 1"
	return a.err == errRefused || a.err == errNoName || a.err == nil && limited
}

// These end a request before there is a connection.
var (
	errRefused error = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errNoName  error = &net.DNSError{Err: "server misbehaving", IsTemporary: true}
)

// send sends a request, and fails with errOwn unless it is answered well.
func send(ctx context.Context, method string, via http.RoundTripper) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://backend.example/", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: resilience.Transport(via)}
	res, err := client.Do(req)
	if err != nil {
		return errOwn
	}
	res.Body.Close()
	if res.StatusCode >= 400 {
		return errOwn
	}
	return nil
}

func sends(method string, a answer) toolFunc {
	return func(ctx context.Context) (int, error) { return 0, errors.Join(send(ctx, method, a)) }
}

var (
	methods    = rapid.SampledFrom([]string{"GET", "POST", "DELETE"})
	rejections = rapid.SampledFrom([]int{400, 401, 402, 403, 404, 405, 409, 410, 412, 418, 422, 499, 501})

	// troubles are answers of a backend that is in trouble, or none.
	troubles = rapid.SampledFrom([]answer{
		{status: 500}, {status: 502}, {status: 503}, {status: 504}, {status: 599},
		{status: 503, header: "Retry-After: 1"},
		{status: 503, header: "Retry-After: 2"}, // longer than Backoff.Max
		{err: io.EOF},
		{err: io.ErrUnexpectedEOF},
		{err: syscall.ECONNRESET},
		{err: errRefused},
		{err: errNoName},
		{err: context.DeadlineExceeded}, // a client's own timeout
	})
)

// limits are answers of a backend that limits requests for longer than a retry waits.
var limits = rapid.SampledFrom([]answer{
	{status: 429}, {status: 429, header: "Retry-After: 60"},
	{status: 403, header: "Retry-After: 60"}, {status: 403, header: "X-RateLimit-Remaining: 0"},
})

// drawMistake returns a tool that fails by the fault of an agent, or because of a rate limit.
func drawMistake(r *rapid.T) toolFunc {
	switch rapid.IntRange(0, 5).Draw(r, "mistake") {
	case 0: // the backend rejects the request
		return sends(methods.Draw(r, "method"), answer{status: rejections.Draw(r, "status")})
	case 1: // the tool makes nothing of a good answer
		return func(ctx context.Context) (int, error) {
			return 0, errors.Join(send(ctx, "GET", answer{status: 200}), errOwn)
		}
	case 2: // the tool rejects the arguments by itself
		return failsWith(errOwn)
	case 4: // there were too many requests
		return sends(methods.Draw(r, "method"), limits.Draw(r, "limit"))
	case 3: // a file that isn't there
		return failsWith(&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT})
	}
	return failsWith(rapid.SampledFrom([]error{
		resilience.MarkInvalid(errOwn),
		resilience.ErrUnfinished,                             // a client that can't elicit
		&net.DNSError{Err: "no such host", IsNotFound: true}, // which it chose
		fmt.Errorf("decoding: %w", io.ErrUnexpectedEOF),      // of what it sent
		&resilience.Error{Code: resilience.CodeValidation, Message: "no such thing"},
	}).Draw(r, "error"))
}

// drawTrouble returns a tool that fails by the fault of its backend.
func drawTrouble(r *rapid.T) toolFunc {
	switch rapid.IntRange(0, 3).Draw(r, "trouble") {
	case 0: // it hangs until the timeout
		return sends("GET", answer{status: 200, took: time.Hour})
	case 1: // after something that went well, or was rejected
		first, last := rejections.Draw(r, "first status"), troubles.Draw(r, "answer")
		return func(ctx context.Context) (int, error) {
			_ = send(ctx, "GET", answer{status: first})
			return 0, send(ctx, "GET", last)
		}
	case 2: // a backend of which only the tool's errors tell
		return failsWith(rapid.SampledFrom([]error{
			resilience.MarkBackend(errOwn), context.DeadlineExceeded, syscall.ECONNRESET,
			&url.Error{Op: "Get", Err: io.ErrUnexpectedEOF},
		}).Draw(r, "error"))
	}
	return sends(methods.Draw(r, "method"), troubles.Draw(r, "answer"))
}

var effects = rapid.SampledFrom([]resilience.Effect{
	resilience.EffectUnknown, resilience.ReadOnly, resilience.Idempotent, resilience.NonIdempotent,
})

// drawGuard returns a guard with all defaults, but for the effect of its tool x.
func drawGuard(r *rapid.T) *resilience.Guard {
	tool := resilience.Tool{Effect: effects.Draw(r, "effect")}
	return resilience.Must(resilience.New(resilience.Config{Tools: map[string]resilience.Tool{"x": tool}}))
}

// A crowd is several clients that share a tool. All that goes wrong is their fault.
type crowd struct{ guard *resilience.Guard }

// often is how often clients do the same in a row, with no good call between. A guard has a limit of 64.
var often = rapid.SampledFrom([]int{1, 5, 100})

// err makes a mistake, and expects that it is answered by one attempt.
func (c *crowd) err(r *rapid.T) {
	work := drawMistake(r)
	for range often.Draw(r, "how often") {
		got := resilience.Run(context.Background(), c.guard, "x", work, behindSDK)
		if got.Err == nil || got.Attempts != 1 {
			r.Fatalf("a mistake: %d attempts, %v", got.Attempts, got.Err)
		}
	}
}

// leave makes a call that the client gives up, in one way or another, while the tool works or soon after. The
// tool may ignore that it is over.
func (c *crowd) leave(r *rapid.T) {
	patience := time.Duration(rapid.IntRange(1, 20_000).Draw(r, "patience in ms")) * time.Millisecond
	// Under the race detector, the runtime may crash if a timer's channel in a bubble is due at once.
	takes := time.Duration(rapid.IntRange(1, 50).Draw(r, "work in seconds")) * time.Second
	deaf := rapid.Bool().Draw(r, "ignores its context")
	result := rapid.SampledFrom([]error{nil, errOwn, context.Canceled, context.DeadlineExceeded}).Draw(r, "result")
	work := func(ctx context.Context) (int, error) {
		done := ctx.Done()
		if deaf {
			done = nil
		}
		select {
		case <-time.After(takes):
		case <-done:
			return 0, result
		}
		return 1, nil
	}
	if rapid.Bool().Draw(r, "by HTTP") {
		work = sends(methods.Draw(r, "method"), answer{status: 200, took: takes})
	}

	opts := []resilience.Option{behindSDK}
	if rapid.Bool().Draw(r, "like an adapter") {
		opts = append(opts, resilience.WaitForTool())
	}
	end := rapid.IntRange(0, 2).Draw(r, "end")
	if end == 0 {
		opts = append(opts, resilience.Timeout(patience+1))
	}
	for range often.Draw(r, "how often") {
		go func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			switch end {
			case 1:
				time.AfterFunc(patience, cancel)
			case 2:
				ctx, cancel = context.WithTimeout(ctx, patience)
				defer cancel()
			}
			_, _ = resilience.Do(ctx, c.guard, "x", work, opts...)
		}()
	}
}

func (c *crowd) wait(r *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(0, 10_000).Draw(r, "ms")) * time.Millisecond)
}

// check makes another client's good call, and lets the crowd's calls go on.
func (c *crowd) check(r *rapid.T) {
	if _, err := resilience.Do(context.Background(), c.guard, "x", works, behindSDK); err != nil {
		r.Fatalf("a good call: %v", err)
	}
	if h := c.guard.Health()[0]; h.State != resilience.StateClosed {
		r.Fatalf("the breaker is %v", h.State)
	}
	synctest.Wait()
}

func TestNoClientShutsAToolForAnother(t *testing.T) {
	checkInBubble(t, func(r *rapid.T) {
		c := &crowd{guard: drawGuard(r)}
		defer time.Sleep(2 * toolTimeout) // by then, every tool has returned
		r.Repeat(map[string]func(*rapid.T){
			"err":   c.err,
			"leave": c.leave,
			"wait":  c.wait,
			"":      c.check,
		})
	})
}

// No number of mistakes opens a breaker, and five failures of the backend do, whatever comes between them.
func TestFiveFailuresOpenABreakerAndMistakesNever(t *testing.T) {
	checkInBubble(t, func(r *rapid.T) {
		g := drawGuard(r)
		failures := 0
		for range 100 {
			work := drawMistake
			if rapid.IntRange(0, 20).Draw(r, "turn") == 0 {
				work = drawTrouble
				failures++
			}
			_, err := resilience.Do(context.Background(), g, "x", work(r), behindSDK)
			if err == nil || errors.Is(err, resilience.CodeCircuitOpen) {
				r.Fatalf("after %d failures: %v", failures, err)
			}

			open := g.Health()[0].State != resilience.StateClosed
			if open != (failures == 5) {
				r.Fatalf("open: %t, after %d failures, the last with %v", open, failures, err)
			}
			if open {
				return
			}
		}
	})
}
