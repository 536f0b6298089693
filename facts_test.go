package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type selfWrapping struct{ _ int } // so that each has an address of its own

func (e *selfWrapping) Error() string { return "self" }
func (e *selfWrapping) Unwrap() error { return e }

type manyWrapping struct{ depth int }

func (e manyWrapping) Error() string { return "many" }
func (e manyWrapping) Unwrap() []error {
	return []error{manyWrapping{e.depth + 1}, manyWrapping{e.depth + 1}}
}

// cyclic returns an *Error that wraps itself.
func cyclic() error {
	e := resilience.AsError("x", errBoom)
	e.Err = fmt.Errorf("around: %w", e)
	return e
}

// Errors that can't be walked to their end. Everything that looks into an error must survive
// them, promptly.
var endless = map[string]func() error{
	"an error that wraps itself":      func() error { return &selfWrapping{} },
	"a cycle through an *Error":       cyclic,
	"a cycle under a mark":            func() error { return resilience.MarkTransient(cyclic()) },
	"a cycle in a join":               func() error { return errors.Join(errBoom, cyclic()) },
	"ever more errors":                func() error { return manyWrapping{} },
	"a tree with shared nodes":        func() error { return fmt.Errorf("x: %w", sharedOf24) },
	"a tree that grows to the right":  func() error { return growing{right: true} },
	"a tree that grows to the left":   func() error { return growing{} },
	"marks all the way":               markedForEver,
	"joins of what is joined":         func() error { return sharedJoins(30) },
	"a panic with an endless error":   func() error { panic(&selfWrapping{}) },
	"an endless error in an own code": func() error { return &resilience.Error{Message: "m", Err: &selfWrapping{}} },
}

var sharedOf24 = lazyShared{}

// lazyShared is a shared tree that is built when it is unwrapped, as its text has 2^24 lines.
type lazyShared struct{}

func (lazyShared) Error() string { return "shared" }
func (lazyShared) Unwrap() []error {
	var err error = leaf{}
	for range 24 {
		err = pair{err}
	}
	return []error{err}
}

// growing is a join of an error and another tree.
type growing struct{ right bool }

func (growing) Error() string { return "growing" }
func (g growing) Unwrap() []error {
	if g.right {
		return []error{leaf{}, g}
	}
	return []error{g, leaf{}}
}

// markedForEver returns a tree of marks and of errors that aren't looked at.
func markedForEver() error {
	several := make(severalErrors, 2)
	several[0], several[1] = resilience.MarkTransient(several), errBoom
	return several
}

// sharedJoins returns an error of 2^n errors, which takes no more memory than n.
func sharedJoins(n int) (err error) {
	err = errBoom
	for range n {
		err = errors.Join(err, pair{err})
	}
	return err
}

type leaf struct{}

func (leaf) Error() string { return "leaf" }

type pair struct{ inner error }

func (p pair) Error() string   { return "pair" }
func (p pair) Unwrap() []error { return []error{p.inner, p.inner} }

func TestEndlessErrorsEndNothing(t *testing.T) {
	for name, fail := range endless {
		tool := func(context.Context) (int, error) { return 0, fail() }
		bare := func() (err error) {
			defer func() { _ = recover() }()
			return fail()
		}

		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ends int
				observer := resilience.LogObserver(nil)
				observer.End = func(context.Context, resilience.CallEnd) { ends++ }
				g := newGuard(t, resilience.Config{Observers: []resilience.Observer{observer}, Debug: true})

				_, err := resilience.Do(t.Context(), g, "x", tool)
				var e *resilience.Error
				require.ErrorAs(t, err, &e)
				assert.NotErrorIs(t, err, errNever, "the whole of it can be walked")
				assert.LessOrEqual(t, countErrors(err, 30_000), 20_010)
				require.NoError(t, g.Flush(t.Context()))
				assert.Equal(t, 1, ends)

				_, err = resilience.WithTimeout(t.Context(), "x", time.Second, tool)
				assert.Error(t, err)
				_, err = resilience.WithRetry(t.Context(), resilience.Retry{}, tool)
				assert.Error(t, err)
				b := resilience.NewBreaker("b", resilience.BreakerConfig{})
				_, err = resilience.WithBreaker(t.Context(), b, tool)
				assert.Error(t, err)

				resilience.Classify(bare())
				assert.NotErrorIs(t, resilience.AsError("x", bare()), errNever)

				c := resilience.NewConnector(func(context.Context) (int, error) { return 1, fail() },
					resilience.ConnectorConfig[int]{MaxAttempts: 2})
				_, err = c.Wait(t.Context())
				assert.NotErrorIs(t, err, errNever)
				require.NoError(t, c.Close())
			})
		})
	}
}

// errNever is in no error.
var errNever = errors.New("never")

// A nil pointer says nothing, but what is around it still stands.
func TestANilPointerInAnErrorDoesNotHideAMark(t *testing.T) {
	var none *nilError
	g := newGuard(t, resilience.Config{Effect: resilience.ReadOnly})

	r := resilience.Run(t.Context(), g, "x", failing(9, resilience.MarkPermanent(none)))
	assert.Equal(t, 1, r.Attempts)
	full := &resilience.Error{Message: "The disk is full", Err: none}
	r = resilience.Run(t.Context(), g, "x", failing(9, full))
	assert.Equal(t, 1, r.Attempts)
	assert.Equal(t, "The disk is full", r.Err.Message)
}

type nilError struct{ err error }

func (e *nilError) Error() string { return e.err.Error() }
func (e *nilError) Unwrap() error { return e.err }

// A tool that checks many items joins its complaints.
func TestManyComplaintsKeepTheirMark(t *testing.T) {
	var nested error
	flat := make([]error, 2000)
	for i := range flat {
		flat[i] = fmt.Errorf("item %d: %w", i, errBoom)
		nested = errors.Join(nested, flat[i])
	}
	for name, err := range map[string]error{"nested": nested, "flat": errors.Join(flat...)} {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
		r := resilience.Run(t.Context(), g, "x", failing(9, resilience.MarkInvalid(err)))
		assert.Equal(t, resilience.CodeValidation, r.Err.Code, name)
		assert.ErrorIs(t, r.Err, errBoom, name)
		assert.Zero(t, g.Health()[0].ConsecutiveFailures, name)
	}
}

type nilSentinel struct{}

func (*nilSentinel) Error() string { return "nil" }

// A nil pointer may be an error that a program compares with.
func TestNilPointerIsFound(t *testing.T) {
	var sentinel *nilSentinel
	_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, sentinel))
	assert.ErrorIs(t, err, sentinel)
	assert.Equal(t, "nil", errors.Unwrap(err).Error())

	found := new(nilSentinel)
	assert.ErrorAs(t, err, &found)
	assert.Nil(t, found)

	_, err = resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, (*net.OpError)(nil)))
	var network net.Error
	assert.False(t, errors.As(err, &network), "whose methods would panic")
}

// An agent that sends thousands of bad items can't shut the tool.
func TestMarksAndErrorsStandAroundAnyNumberOfErrors(t *testing.T) {
	for name, n := range map[string]int{"few": 10, "many": 10_001} {
		runInBubble(t, name, func(t *testing.T) {
			complaints := errors.Join(slices.Repeat([]error{errBoom}, n)...)
			own := &resilience.Error{Code: resilience.CodeValidation, Message: "Give at most 100 items", Err: complaints}
			g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})
			for _, err := range []error{
				resilience.MarkInvalid(complaints), own, fmt.Errorf("x: %w", own), errors.Join(own, errBoom),
			} {
				r := resilience.Run(t.Context(), g, "x", failing(9, err))
				assert.Equal(t, 1, r.Attempts)
				assert.Equal(t, resilience.CodeValidation, r.Err.Code)
				if errors.Is(err, own) {
					assert.Equal(t, "Give at most 100 items", r.Err.Message)
				}
			}
			assert.Zero(t, g.Health()[0].ConsecutiveFailures)

			// Whether it did something else than the request that was refused isn't known if not all is read.
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent}), "x",
				func(ctx context.Context) (int, error) {
					resilience.ReportBackend(ctx, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
					return 0, complaints
				})
			assert.Equal(t, map[string]int{"few": 4, "many": 1}[name], r.Attempts)
		})
	}
}

// That a request was refused says nothing of what else a tool's error tells of.
func TestPromise8ARefusedRequestSpeaksOnlyForAnErrorThatTellsNothing(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, tc := range map[string]struct {
		err      error
		attempts int
	}{
		"nothing":         {errBoom, 4},
		"a reset":         {fmt.Errorf("x: %w", syscall.ECONNRESET), 1},
		"words":           {&resilience.Error{Message: "The order is kept", Retryable: true}, 1},
		"trouble":         {statusError(503), 1},
		"a deadline":      {fmt.Errorf("x: %w", context.DeadlineExceeded), 1},
		"like a deadline": {deadlineLike{}, 1},
		"first a reset":   {errors.Join(syscall.ECONNRESET, errBoom), 1},
		"then a reset":    {errors.Join(errBoom, syscall.ECONNRESET), 1},
		"first a trouble": {errors.Join(statusError(503), errBoom), 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				resilience.ReportBackend(ctx, refused)
				return 0, tc.err
			})
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// After a request, only marks of all errors say that it may be repeated.
func TestPromise8MarksOfSomeErrorsDoNotSpeakForAll(t *testing.T) {
	marked := resilience.MarkTransient(errBoom)
	for name, tc := range map[string]struct {
		err      error
		attempts int
	}{
		"the first":   {errors.Join(marked, errBoom), 1},
		"the last":    {errors.Join(errBoom, marked), 1},
		"a refused":   {errors.Join(marked, syscall.ECONNREFUSED), 1},
		"all of them": {errors.Join(marked, marked), 4},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				resilience.ReportBackend(ctx, nil)
				return 0, tc.err
			})
			assert.Equal(t, tc.attempts, r.Attempts)
		})
	}
}

// What is certain of some errors says nothing of those that aren't looked at any more.
func TestPromise8ErrorsThatAreNotLookedAtMayHaveHadAnEffect(t *testing.T) {
	certain := resilience.MarkTransient(errors.Join(slices.Repeat([]error{errBoom}, 10_001)...))
	for name, err := range map[string]error{
		"first": errors.Join(certain, errBoom), "last": errors.Join(errBoom, certain), "alone": certain,
		"joined alone": errors.Join(certain), "beside nothing": severalErrors{certain, nil},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
			r := resilience.Run(t.Context(), g, "x", failing(9, err))
			assert.Equal(t, name != "first" && name != "last", r.Attempts > 1)
		})
	}
}

// A tool that reads a file of bad lines joins an error for each. Those that are read are reached, whatever is around
// them.
func TestPromise4CausesOfManyErrorsAreReached(t *testing.T) {
	errBadLine, errLast := errors.New("bad line"), errors.New("the last one")
	lines := func(n int) error {
		var all []error
		for i := range n {
			all = append(all, fmt.Errorf("line %d: %w", i, errBadLine))
		}
		return errors.Join(append(all, errLast)...)
	}
	own := &resilience.Error{Code: resilience.CodeValidation, Message: "m", Err: lines(6000)}
	for name, tc := range map[string]struct {
		err error
		all bool
	}{
		"few":          {lines(4000), true},
		"many":         {lines(6000), false},
		"wrapped":      {fmt.Errorf("file: %w", lines(6000)), false},
		"marked":       {resilience.MarkPermanent(lines(6000)), false},
		"in Permanent": {backoff.Permanent(lines(6000)), false},
		"in an Error":  {own, false},
		"in a panic":   {&resilience.PanicError{Value: lines(6000)}, false},
		"after others": {errors.Join(errBoom, nil, lines(6000), nil), false},
		"before":       {errors.Join(lines(6000), nil, errBoom), false},
		"among marks":  {severalErrors{nil, resilience.MarkTransient(lines(6000)), nil, errBoom}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, tc.err))
			for _, err := range []error{err, resilience.AsError("x", tc.err), resilience.AsError("x", err)} {
				assert.ErrorIs(t, err, errBadLine)
				assert.Equal(t, tc.all, errors.Is(err, errLast))
				assert.LessOrEqual(t, countErrors(err, 11_000), 10_010)
			}
			if name == "many" {
				lines := strings.Split(errors.Unwrap(err).Error(), "\n")
				assert.Equal(t, "line 1: bad line", lines[1])
				assert.Equal(t, "line 4998: bad line", lines[4998])
				assert.Regexp(t, "too many", lines[4999])
				assert.Len(t, lines, 5000)
			}
		})
	}
}

// countErrors counts err and what it wraps, each as often as errors.Is comes to it, up to a limit.
func countErrors(err error, limit int) int {
	n := 0
	var count func(error)
	count = func(err error) {
		if n++; n > limit || err == nil {
			return
		}
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			if inner := x.Unwrap(); inner != nil {
				count(inner)
			}
		case interface{ Unwrap() []error }:
			for _, inner := range x.Unwrap() {
				if n <= limit {
					count(inner)
				}
			}
		}
	}
	count(err)
	return n
}

// What is left says what the whole says, but for those errors that weren't read.
func TestWhatIsLeftOfManyErrorsSaysWhatTheySay(t *testing.T) {
	first := errors.New("the first")
	many := errors.Join(append([]error{first}, slices.Repeat([]error{errBoom}, 10_001)...)...)
	left := resilience.AsError("x", resilience.MarkPermanent(many)).Err
	assert.ErrorIs(t, left, first)
	assert.Equal(t, resilience.ClassPermanent, resilience.Classify(left))
}

// The text has a line for each error that was read, and one for all others.
func TestTextOfWhatIsLeftOfManyErrors(t *testing.T) {
	const more = "resilience: an error that wraps itself or too many others, or can't be examined"
	lines := func(n int) error { return errors.Join(slices.Repeat([]error{errBoom}, n)...) }
	for name, tc := range map[string]struct {
		err  error
		read int // of errBoom
		more int // lines
	}{
		"flat":               {lines(10_001), 9_999, 1},
		"in one":             {severalErrors{lines(10_001)}, 9_998, 1}, // some versions of errors.Join add nothing
		"in two":             {errors.Join(lines(10), lines(10_001)), 9_997, 1},
		"before others":      {errors.Join(lines(10_001), lines(10)), 9_998, 1},
		"within others":      {errors.Join(errBoom, errors.Join(errBoom, lines(10_001), errBoom), errBoom), 9_997, 1},
		"a mark's, in place": {errors.Join(resilience.MarkInvalid(lines(10_001)), errBoom), 9_997, 2},
	} {
		text := resilience.AsError("x", tc.err).Err.Error()
		assert.Equal(t, tc.read, strings.Count(text, errBoom.Error()), name)
		assert.Equal(t, tc.more, strings.Count(text, more), name)
		assert.Equal(t, tc.read+tc.more, strings.Count(text, "\n")+1, name)
	}
}

type severalErrors []error

func (severalErrors) Error() string     { return "several" }
func (s severalErrors) Unwrap() []error { return s }

func TestNilAmongSeveralErrorsSaysNothing(t *testing.T) {
	err := severalErrors{nil, resilience.MarkInvalid(errBoom), nil}
	assert.Equal(t, resilience.ClassInvalid, resilience.Classify(err))
	r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, err))
	assert.Equal(t, resilience.CodeValidation, r.Err.Code)
	assert.ErrorIs(t, r.Err, errBoom)
}

func TestMethodsOfErrorsThatPanicSayNothing(t *testing.T) {
	for name, err := range errorsThatCall(func() { panic("p") }) {
		if name == "MarshalJSON" { // of the details
			continue
		}
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, err))
		assert.Equal(t, resilience.CodeToolFailed, r.Err.Code, name)
		assert.Equal(t, resilience.ClassTransient, resilience.Classify(err), name)
	}
}

// What is passed on has an end, wherever the cycle is.
func TestWhatStandsAroundACycleHasAnEnd(t *testing.T) {
	cycle := &resilience.Error{Message: "m"}
	cycle.Err = fmt.Errorf("x: %w", cycle)
	for name, err := range map[string]error{
		"an Error": cycle, "a mark": resilience.MarkPermanent(cycle), "Permanent": backoff.Permanent(cycle),
		"a panic": &resilience.PanicError{Value: cycle}, "a wrap": fmt.Errorf("y: %w", cycle),
	} {
		seen := make(chan error, 9)
		cfg := configWith(resilience.Tool{})
		cfg.Breaker.Classify = func(err error) resilience.Class { seen <- err; return resilience.Classify(err) }
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(9, err))
		assert.NotErrorIs(t, r.Err, errBoom, name)
		assert.Error(t, errors.Unwrap(r.Err), name)
		assert.NotErrorIs(t, resilience.AsError("x", err), errBoom, name)
		assert.Equal(t, name != "a panic", len(seen) == 1, name) // Classify isn't asked about a crash
		close(seen)
		for err := range seen {
			assert.NotErrorIs(t, err, errBoom, name)
		}
	}
}

// An inquiredError counts what it is asked.
type inquiredError struct {
	inner error
	asked map[string]int
}

func (e *inquiredError) count(question string) { e.asked[question]++ }

func (e *inquiredError) Error() string             { e.count("Error"); return "inquired" }
func (e *inquiredError) Unwrap() error             { e.count("Unwrap"); return e.inner }
func (e *inquiredError) Is(target error) bool      { e.count("Is " + target.Error()); return false }
func (e *inquiredError) As(target any) bool        { e.count(fmt.Sprintf("As %T", target)); return false }
func (e *inquiredError) RetryAfter() time.Duration { e.count("RetryAfter"); return time.Millisecond }
func (e *inquiredError) Timeout() bool             { e.count("Timeout"); return true }
func (e *inquiredError) Temporary() bool           { e.count("Temporary"); return true }
func (e *inquiredError) StatusCode() int           { e.count("StatusCode"); return 503 }

// An error's methods are a tool's code, and may be slow. Error isn't asked at all: an agent reads no such text.
func TestAnErrorIsAskedEachQuestionOnce(t *testing.T) {
	ctx := context.Background()
	inGuard := func(tool resilience.Tool) func(error) {
		g := guardWith(t, tool)
		return func(err error) { _, _ = resilience.Do(ctx, g, "x", failing(9, err)) }
	}
	noRetry := resilience.Retry{MaxRetries: -1}
	for name, examine := range map[string]func(error){
		"enforced":         inGuard(resilience.Tool{}),
		"cooperative":      inGuard(resilience.Tool{Cooperative: true}),
		"attempt":          inGuard(resilience.Tool{AttemptTimeout: time.Minute}),
		"no retry is left": inGuard(resilience.Tool{Effect: resilience.ReadOnly, Retry: &noRetry}),
		"Classify":         func(err error) { resilience.Classify(err) },
		"AsError":          func(err error) { _ = resilience.AsError("x", err) },
		"exhausted":        func(err error) { _ = resilience.RetryExhaustedError("x", 3, err) },
		"WithRetry": func(err error) {
			_, _ = resilience.WithRetry(ctx, noRetry, failing(9, err))
		},
		"WithBreaker": func(err error) {
			b := resilience.NewBreaker("b", resilience.BreakerConfig{})
			_, _ = resilience.WithBreaker(ctx, b, failing(9, err))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &inquiredError{asked: map[string]int{}}
			outer := &inquiredError{inner: errors.Join(errBoom, inner), asked: map[string]int{}}
			examine(errors.Join(outer))

			for _, e := range []*inquiredError{outer, inner} {
				assert.Equal(t, 1, e.asked["Unwrap"])
				assert.Equal(t, 1, e.asked["StatusCode"])
				assert.Equal(t, 1, e.asked["As **resilience.Error"])
				assert.Equal(t, 1, e.asked["Is context canceled"])
				assert.Zero(t, e.asked["Error"])
				for question, n := range e.asked {
					assert.Equal(t, 1, n, question)
				}
			}
		})
	}
}

// What a program says of an error without an end still holds.
func TestWhatIsLeftOfAnEndlessErrorKeepsWhatIsSaidAroundIt(t *testing.T) {
	own := &resilience.Error{Code: resilience.CodeValidation, Message: "m", Err: &selfWrapping{}}
	crash := &resilience.PanicError{Value: &selfWrapping{}, Stack: []byte("main.go:1")}
	for name, tc := range map[string]struct {
		err   error
		class resilience.Class
	}{
		"permanent":          {resilience.MarkPermanent(&selfWrapping{}), resilience.ClassPermanent},
		"invalid":            {resilience.MarkInvalid(&selfWrapping{}), resilience.ClassInvalid},
		"the backend's":      {resilience.MarkBackend(&selfWrapping{}), resilience.ClassTransient},
		"by another library": {backoff.Permanent(&selfWrapping{}), resilience.ClassPermanent},
		"without a mark":     {&selfWrapping{}, resilience.ClassTransient},
		"the tool's own":     {fmt.Errorf("x: %w", own), resilience.ClassInvalid},
		"a panic":            {fmt.Errorf("x: %w", crash), resilience.ClassPermanent},
	} {
		left := resilience.AsError("x", tc.err).Err
		require.Error(t, left, name)
		assert.Equal(t, tc.class, resilience.Classify(left), name)
		assert.NotErrorIs(t, left, errNever, name)
		var p *resilience.PanicError
		if errors.As(left, &p) {
			assert.Equal(t, crash.Stack, p.Stack)
			assert.Error(t, p.Unwrap())
		} else {
			assert.NotEqual(t, "a panic", name)
		}
	}
}

// The last of several attempts doesn't speak for the one before it.
func TestWhatIsLeftOfTheLastEndlessErrorDoesNotSayThatNothingWasDone(t *testing.T) {
	retry := resilience.Retry{Backoff: resilience.Backoff{Base: time.Microsecond}, MaxElapsed: time.Minute}
	_, err := resilience.WithRetry(t.Context(), retry, func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 0, errBoom
		}
		return 0, resilience.MarkTransient(&resilience.Error{
			Message: "m", Retryable: true, RetryAfter: time.Hour, Err: &selfWrapping{},
		})
	})
	left := resilience.AsError("x", fmt.Errorf("x: %w", err)).Err
	require.Error(t, left)
	for _, err := range []error{err, left} {
		g := guardWith(t, resilience.Tool{Effect: resilience.NonIdempotent})
		r := resilience.Run(t.Context(), g, "x", failing(9, err))
		assert.Equal(t, 1, r.Attempts)
	}
}

// net makes no such error, but a program may, by a variable that errors.As has left alone.
func TestNilPointersWithinErrorsOfTheNetwork(t *testing.T) {
	for name, err := range map[string]error{
		"host":    &net.OpError{Op: "dial", Net: "tcp", Err: (*net.DNSError)(nil)},
		"parse":   &net.OpError{Op: "dial", Net: "tcp", Err: (*net.ParseError)(nil)},
		"address": &net.OpError{Op: "dial", Net: "tcp", Err: (*net.AddrError)(nil)},
		"URL":     &url.Error{Op: "Get", URL: "x", Err: (*net.OpError)(nil)},
	} {
		_, got := resilience.Do(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, err))
		assert.ErrorIs(t, got, err, name)
		b := resilience.NewBreaker("b", resilience.BreakerConfig{})
		_, got = resilience.WithBreaker(t.Context(), b, failing(9, err))
		assert.ErrorIs(t, got, err, name)
	}
}

// recursive wraps itself, and has a text without an end.
type recursive struct{ err error }

func (e *recursive) Error() string { return "x: " + e.err.Error() }
func (e *recursive) Unwrap() error { return e.err }

func newRecursive() error {
	e := new(recursive)
	e.err = e
	return e
}

// An error without an end reaches what prints errors not only by a tool's return: this process would end.
func TestErrorsWithoutAnEndArePrinted(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for name, cfg := range map[string]resilience.Config{
		"the cause of a caller's end, in a log":   {Observers: []resilience.Observer{resilience.LogObserver(log)}},
		"the cause of a caller's end, with debug": {Debug: true},
		"the panic of an observer": {Log: log, Observers: []resilience.Observer{
			{End: func(context.Context, resilience.CallEnd) { panic(newRecursive()) }},
		}},
		"the panic of a Probe": {Log: log, Breaker: resilience.BreakerConfig{
			Probe: func(context.Context) error { panic(newRecursive()) },
		}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			cfg.Tools = map[string]resilience.Tool{"x": {}}
			g := newGuard(t, cfg)
			g.Breaker("x").Trip(0)
			time.Sleep(10 * time.Second)
			g.Breaker("x").Reset()
			ctx, cancel := context.WithCancelCause(t.Context())
			_, err := resilience.Do(ctx, g, "x", func(ctx context.Context) (int, error) {
				cancel(newRecursive())
				return untilDone(ctx)
			})
			assert.ErrorIs(t, err, resilience.CodeCanceled)
			require.NoError(t, g.Flush(t.Context()))
		})
	}
}
