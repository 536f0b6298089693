package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPanicHasItsValueAndItsStack(t *testing.T) {
	_, err := resilience.WithTimeout(t.Context(), "x", time.Second, func(context.Context) (int, error) { panic("p") })

	var p *resilience.PanicError
	require.ErrorAs(t, err, &p)
	assert.Equal(t, "p", p.Value)
	assert.EqualError(t, p, "panic: p")
	assert.Contains(t, string(p.Stack), "TestPanicHasItsValueAndItsStack")
}

// A value that contains itself has no end when it is printed.
func TestPromise7PanicWithAValueThatContainsItself(t *testing.T) {
	parent := map[string]any{"name": "root"}
	parent["children"] = []any{map[string]any{"name": "leaf", "parent": parent}}
	var log strings.Builder
	cfg := configWith(resilience.Tool{})
	cfg.Debug = true
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	cfg.Observers = []resilience.Observer{
		resilience.LogObserver(cfg.Log),
		{End: func(context.Context, resilience.CallEnd) { panic(parent) }},
	}
	g := newGuard(t, cfg)

	r := resilience.Run(t.Context(), g, "x", panicking(parent))
	assert.Equal(t, "panic: a value of type map[string]interface {}", r.Err.Details["cause"])
	require.NoError(t, g.Flush(t.Context()))
	assert.Contains(t, log.String(), `error="panic: a value of type map[string]interface {}"`)
	assert.Contains(t, log.String(), `panic="a value of type map[string]interface {}"`)
}

func TestPanicHasTheTextOfASimpleValue(t *testing.T) {
	type code int
	for want, value := range map[string]any{
		"boom": errors.New("boom"), "1s": time.Second, "7": code(7), "true": true, "1.5": 1.5, "(1+2i)": 1 + 2i,
		"<nil>":                nil,
		"a value of type *int": new(int), "a value of type []string": []string{"a"},
	} {
		assert.EqualError(t, &resilience.PanicError{Value: value}, "panic: "+want)
	}
}

// Whatever error a tool panics with, it says nothing about what the tool did before.
func TestPanicIsAPermanentFailureWhateverItsValue(t *testing.T) {
	for _, value := range []error{
		io.ErrUnexpectedEOF,
		context.DeadlineExceeded,
		syscall.ECONNREFUSED,
		resilience.TimeoutError("inner", 1),
		resilience.MarkTransient(errBoom),
	} {
		t.Run(fmt.Sprint(value), func(t *testing.T) {
			r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", panicking(value))

			assert.Equal(t, resilience.CodeToolFailed, r.Err.Code)
			assert.Equal(t, 1, r.Attempts)
			assert.False(t, r.Err.Retryable)
			assert.ErrorIs(t, r.Err, value)
		})
	}
}

func TestGoexitHasNoValueOfAnEarlierAttempt(t *testing.T) {
	g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly})

	v, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
		if resilience.Attempt(ctx) == 1 {
			return 7, errBoom
		}
		runtime.Goexit()
		return 0, nil
	})

	require.ErrorIs(t, err, resilience.ErrGoexit)
	assert.Zero(t, v)
}

func TestPanicOfACooperativeToolIsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Cooperative: true})

		_, err := resilience.Do(t.Context(), g, "x", panicking(io.EOF))

		assert.ErrorIs(t, err, resilience.CodeToolFailed)
		assert.ErrorIs(t, err, io.EOF)
	})
}

func TestGoexitOfACooperativeToolEndsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Cooperative: true})

		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_, _ = resilience.Do(t.Context(), g, "x", exit)
		}()
		<-exited

		h := g.Health()[0]
		assert.Zero(t, h.InFlight)
		assert.ErrorIs(t, h.LastError, resilience.ErrGoexit)
	})
}

// What a Cooperative tool does once its call has ended says what that end says, whether it panics or ends its goroutine.
func TestPromise6CrashOfACooperativeToolWhoseCallHasEnded(t *testing.T) {
	for name, crash := range map[string]toolFunc{"panics": panicking("x"), "exits": exit} {
		for by, want := range map[string]struct {
			code    resilience.Code
			counted bool
		}{
			"its caller": {code: resilience.CodeCanceled}, "its caller's deadline": {code: resilience.CodeTimeout},
			"its own timeout": {resilience.CodeTimeout, true},
		} {
			t.Run(name+" after "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := configWith(resilience.Tool{Timeout: time.Minute, Cooperative: true})
					var end resilience.CallEnd
					cfg.Observers = []resilience.Observer{{End: func(_ context.Context, e resilience.CallEnd) { end = e }}}
					g := newGuard(t, cfg)
					ctx, cancel := context.WithCancel(t.Context())
					switch by {
					case "its caller":
						time.AfterFunc(time.Second, cancel)
					case "its caller's deadline":
						ctx, cancel = context.WithTimeout(ctx, time.Second)
					}
					defer cancel()

					resilience.All(ctx, g, resilience.Call[int]{Tool: "x", Func: func(ctx context.Context) (int, error) {
						<-ctx.Done()
						return crash(ctx)
					}})
					require.NoError(t, g.Flush(t.Context()))
					assert.ErrorIs(t, end.Err, want.code)
					assert.Equal(t, want.counted, end.Counted)
					if name == "exits" {
						assert.ErrorIs(t, end.Err, resilience.ErrGoexit)
					}
				})
			})
		}
	}
}

// The caller gets no error then, but observers and Health do.
func TestPromise4GoexitAfterAFailureHidesNoCause(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		inOnRetry := configWith(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
		inOnRetry.Retry.OnRetry = func(int, time.Duration, error) { runtime.Goexit() }
		inAttempt := configWith(resilience.Tool{Effect: resilience.ReadOnly, Cooperative: true})

		for _, cfg := range []resilience.Config{inOnRetry, inAttempt} {
			var end resilience.CallEnd
			cfg.Observers = []resilience.Observer{{End: func(_ context.Context, e resilience.CallEnd) { end = e }}}
			g := newGuard(t, cfg)
			go func() {
				_, _ = resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
					if resilience.Attempt(ctx) == 2 {
						runtime.Goexit()
					}
					return 0, errBoom
				})
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			assert.ErrorIs(t, end.Err, resilience.ErrGoexit)
			assert.ErrorIs(t, end.Err, errBoom)
			assert.ErrorIs(t, g.Health()[0].LastError, errBoom)
		}
	})
}

func TestPromise8GoexitOfACooperativeToolAsksTheAgentToCheck(t *testing.T) {
	for effect, want := range map[resilience.Effect]string{
		resilience.NonIdempotent: suggestCheck, resilience.EffectUnknown: suggestChange + " " + suggestCaution,
	} {
		for _, cooperative := range []bool{false, true} {
			g := guardWith(t, resilience.Tool{Effect: effect, Cooperative: cooperative})
			results := resilience.All(t.Context(), g, resilience.Call[int]{Tool: "x", Func: exit})
			assert.Equal(t, want, results[0].Err.Suggestion)
		}
	}
}

func TestPromise4CrashAfterAFailureHidesNoCause(t *testing.T) {
	inBothModes(t, func(t *testing.T, cooperative bool) {
		g := guardWith(t, resilience.Tool{Effect: resilience.ReadOnly, Cooperative: cooperative})
		for _, crash := range []toolFunc{panicking("x"), exit} {
			results := resilience.All(t.Context(), g, resilience.Call[int]{Tool: "x", Func: func(ctx context.Context) (int, error) {
				if resilience.Attempt(ctx) == 2 {
					return crash(ctx)
				}
				return 0, errBoom
			}})
			assert.ErrorIs(t, results[0].Err, errBoom)
		}
	})
}

// A tool may return a nil *PanicError as an error, by a variable of that type.
func TestPromise7ANilPanicErrorSurvivesItsMethods(t *testing.T) {
	var none *resilience.PanicError
	assert.EqualError(t, none, "<nil>")
	assert.NoError(t, none.Unwrap())

	in := func(set func(*resilience.Config)) func(context.Context) error {
		return func(ctx context.Context) error {
			cfg := configWith(resilience.Tool{Timeout: time.Second})
			set(&cfg)
			_, err := resilience.Do(ctx, newGuard(t, cfg), "x", failing(9, none), resilience.Debug())
			return err
		}
	}
	slow := func(err error) resilience.Class { time.Sleep(time.Hour); return resilience.Classify(err) }
	for name, call := range map[string]func(context.Context) error{
		"Do":                           in(func(*resilience.Config) {}),
		"Cooperative":                  in(func(cfg *resilience.Config) { cfg.Tools["x"] = resilience.Tool{Cooperative: true} }),
		"Do, that is examined slowly":  in(func(cfg *resilience.Config) { cfg.Breaker.Classify = slow }),
		"Retry, that asks for so long": in(func(cfg *resilience.Config) { cfg.Retry.Classify = slow }),
		"Classify that calls Goexit": in(func(cfg *resilience.Config) {
			cfg.Retry.Classify = func(error) resilience.Class { runtime.Goexit(); return 0 }
		}),
		"WithTimeout": func(ctx context.Context) error {
			_, err := resilience.WithTimeout(ctx, "x", time.Second, failing(9, none))
			return err
		},
		"WithRetry": func(ctx context.Context) error {
			_, err := resilience.WithRetry(ctx, resilience.Retry{}, failing(9, none))
			return err
		},
		"WithBreaker": func(ctx context.Context) error {
			b := resilience.NewBreaker("b", resilience.BreakerConfig{})
			_, err := resilience.WithBreaker(ctx, b, failing(9, none))
			return err
		},
		"AsError": func(context.Context) error { return resilience.AsError("x", none) },
	} {
		runInBubble(t, name, func(t *testing.T) {
			err := call(t.Context())
			assert.ErrorIs(t, err, none)
			assert.NotPanics(t, func() {
				assert.NotErrorIs(t, err, errBoom)
				_ = fmt.Sprint(err, errors.Unwrap(err))
				slog.New(slog.DiscardHandler).Error("call", "err", err)
			})
			time.Sleep(2 * time.Hour)
		})
	}
}
