package gosdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/seed8d1e2389/resilience"
	"github.com/seed8d1e2389/resilience/adapters/gosdk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A rollbackError wraps a join.
type rollbackError struct{ error }

func (e *rollbackError) Unwrap() error { return e.error }

// A loss is told around the error as it is: what is beside it is still found, and what is around it.
func TestCausesOfALossAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, newPeer().dial, sessionConfig{})
		defer s.Close()
		up(t, s)
		beside := errors.New("rollback failed")
		joined := errors.Join(fmt.Errorf(`calling "tools/call": %w`, mcp.ErrSessionMissing), beside)
		outer := &rollbackError{&rollbackError{joined}}
		_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
			return 0, outer
		})
		requireLost(t, err)
		assert.ErrorIs(t, err, mcp.ErrSessionMissing)
		assert.ErrorIs(t, err, beside)
		assert.ErrorIs(t, err, joined)
		var rollback *rollbackError
		require.ErrorAs(t, err, &rollback)
		assert.Same(t, outer, rollback)
		assert.ErrorContains(t, errors.Unwrap(err), beside.Error())
	})
}

// A chain is a list of errors, as some libraries have it.
type chain []error

func (c chain) Error() string        { return errors.Join(c...).Error() }
func (c chain) Is(target error) bool { return errors.Is(c[0], target) }
func (c chain) As(target any) bool   { return errors.As(c[0], target) }

func (c chain) Unwrap() error {
	if len(c) == 1 {
		return nil
	}
	return c[1:]
}

func TestEachErrorOfAChainIsJudged(t *testing.T) {
	mistake := fmt.Errorf(`calling "tools/call": %w`, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no"})
	missing := fmt.Errorf(`calling "tools/call": %w`, mcp.ErrSessionMissing)
	for name, all := range map[string]chain{"first": {missing, mistake}, "last": {mistake, io.EOF, missing}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t, newPeer().dial, sessionConfig{})
				defer s.Close()
				first := up(t, s)
				_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) {
					return 0, fmt.Errorf("both: %w", all)
				})
				requireLost(t, err)
				assert.NotSame(t, first, up(t, s))
			})
		})
	}
}

// An orderError says what it is by its Is method.
type orderError struct{ error }

var errOrder = errors.New("order")

func (e *orderError) Unwrap() error        { return e.error }
func (e *orderError) Is(target error) bool { return target == errOrder }

// A mirror finds itself for whoever asks.
type mirror struct{ error }

func (m *mirror) Unwrap() error { return m.error }
func (m *mirror) As(target any) bool {
	found, ok := target.(*error)
	if ok {
		*found = m
	}
	return ok
}

// A bottomless error has another one of its kind, for whoever asks.
type bottomless struct{ depth int }

func (bottomless) Error() string { return "bottomless" }
func (bottomless) Unwrap() error { return nil }
func (e bottomless) As(target any) bool {
	found, ok := target.(*error)
	if ok {
		*found = errors.Join(bottomless{e.depth + 1})
	}
	return ok
}

// A recast error has the text of one of the SDK's, and wraps what that wraps.
type recast struct {
	text  string
	cause error
}

func (r *recast) Error() string { return r.text }
func (r *recast) Unwrap() error { return r.cause }

// The SDK's words count in an error of another type, too.
func TestWordsOfTheSDKInAnotherType(t *testing.T) {
	said := fmt.Errorf(`calling "tools/call": %w`, errors.New("empty batch"))
	for name, err := range map[string]error{
		"recast":     &recast{said.Error(), errors.Unwrap(said)},
		"two causes": fmt.Errorf("%v: %w: %w", said, io.ErrShortWrite, io.ErrNoProgress),
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, newPeer().dial, sessionConfig{})
			defer s.Close()
			first := up(t, s)
			_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 0, err })
			requireLost(t, err)
			assert.NotSame(t, first, up(t, s))
		})
	}
}

// A countedText counts how often its text is made.
type countedText struct{ texts *atomic.Int32 }

func (c countedText) Error() string { c.texts.Add(1); return "counted" }

// However many errors a loop joins, the text of all of them isn't made for each: that would take minutes.
func TestTextOfManyErrorsIsMadeSeldom(t *testing.T) {
	for name, add := range map[string]func(all, err error) error{
		"joined":             func(all, err error) error { return errors.Join(all, err) },
		"joined and wrapped": func(all, err error) error { return &rollbackError{errors.Join(all, err)} },
		"wrapped":            func(all, _ error) error { return &rollbackError{all} },
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, newPeer().dial, sessionConfig{})
			defer s.Close()
			up(t, s)
			var texts atomic.Int32
			said := error(countedText{&texts})
			for range 300 {
				said = add(said, errors.New("a mistake"))
			}
			_, err := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 0, said })
			assert.Same(t, said, err)
			assert.Less(t, texts.Load(), int32(10))
		})
	}
}

// What can't be read is returned as it is.
func TestErrorThatCannotBeRead(t *testing.T) {
	for name, err := range map[string]error{
		"a nil pointer": (*fs.PathError)(nil),
		"beside a loss": errors.Join((*fs.PathError)(nil), fmt.Errorf(`calling "tools/call": %w`, mcp.ErrSessionMissing)),
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, newPeer().dial, sessionConfig{})
			defer s.Close()
			up(t, s)
			_, got := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 0, err })
			assert.True(t, got == err)

			g := newGuard(t, resilience.Config{})
			call := gosdk.ClientMiddleware(g)(func(context.Context, string, mcp.Request) (mcp.Result, error) { return nil, err })
			_, got = call(t.Context(), "tools/call", &mcp.ClientRequest[mcp.Params]{Params: &mcp.CallToolParams{Name: "x"}})
			require.IsType(t, &resilience.Error{}, got)
		})
	}
}

func TestOddTypesAroundAnErrorOfTheSDK(t *testing.T) {
	missing := fmt.Errorf(`calling "tools/call": %w`, mcp.ErrSessionMissing)
	own := &resilience.Error{Code: "OWN", Message: missing.Error()}
	said := *own
	for name, err := range map[string]error{
		"an Is method":       &orderError{errors.Join(missing, io.EOF)},
		"a mirror":           &mirror{&mirror{missing}},
		"an author's text":   errors.Join(own, io.EOF),
		"a bottomless error": errors.Join(missing, bottomless{}),
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, newPeer().dial, sessionConfig{})
			defer s.Close()
			up(t, s)
			_, got := gosdk.Use(t.Context(), s, func(context.Context, *mcp.ClientSession) (int, error) { return 0, err })
			switch name {
			case "an author's text":
				assert.Same(t, err, got)
				assert.Equal(t, said, *own)
			case "an Is method":
				requireLost(t, got)
				assert.ErrorIs(t, got, errOrder)
			default:
				requireLost(t, got)
			}
		})
	}
}
