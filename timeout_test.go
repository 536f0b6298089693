package resilience_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThreeToolsAreHeavyByDefault(t *testing.T) {
	g := guardWith(t, resilience.Tool{})
	for _, tool := range []string{"cypher", "impact", "explore", "Cypher", " EXPLORE "} {
		assert.Equal(t, 120*time.Second, g.Timeout(tool), "%q", tool)
	}
	for _, tool := range []string{
		"search", "grep", "read", "context", "overview", "highlight", "cyphers", "", "anything",
	} {
		assert.Equal(t, 60*time.Second, g.Timeout(tool), "%q", tool)
	}
}

func TestWithTimeoutReturnsWhatItsFunctionReturnsInTime(t *testing.T) {
	timedOut := []error{resilience.CodeTimeout, context.DeadlineExceeded}
	for name, tc := range map[string]struct {
		fn    toolFunc
		value int
		is    []error
		err   error // exactly, if is has none
		took  time.Duration
	}{
		"success":                  {fn: succeed, value: 1},
		"failure":                  {fn: failing(1, errBoom), value: 1, err: errBoom},
		"a deadline of its own":    {fn: failingAfter(0, context.DeadlineExceeded), err: context.DeadlineExceeded},
		"success just in time":     {fn: hang(time.Second - 1), value: lateValue, took: time.Second - 1},
		"the function hangs":       {fn: hang(time.Hour), is: timedOut, took: time.Second},
		"the function respects it": {fn: failingOnceDone(context.DeadlineExceeded), is: timedOut, took: time.Second},
		"a failure at the timeout": {fn: failingOnceDone(errBoom), is: timedOut, took: time.Second},
		"a failure after it":       {fn: failingAfter(2*time.Second, errBoom), is: timedOut, took: time.Second},
		"goexit":                   {fn: exit, is: []error{resilience.CodeToolFailed, resilience.ErrGoexit}},
		"panic":                    {fn: panicking("p"), is: []error{resilience.CodeToolFailed}},
		"panic with an error":      {fn: panicking(io.EOF), is: []error{resilience.CodeToolFailed, io.EOF}},
		"panic with nil":           {fn: panicking(nil), is: []error{resilience.CodeToolFailed}},
	} {
		runInBubble(t, name, func(t *testing.T) {
			start := time.Now()
			value, err := resilience.WithTimeout(t.Context(), "x", time.Second, tc.fn)

			assert.Equal(t, tc.took, time.Since(start))
			assert.Equal(t, tc.value, value)
			for _, target := range tc.is {
				assert.ErrorIs(t, err, target)
			}
			if tc.is == nil {
				assert.Equal(t, tc.err, err, "unchanged")
			}
			time.Sleep(time.Hour) // past the function
		})
	}
}

func TestWithTimeoutEndsWithItsCaller(t *testing.T) {
	errGone := errors.New("user closed the window")
	leaves := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(100*time.Millisecond, func() { cancel(errGone) })
		return ctx, func() { cancel(nil) }
	}
	hurries := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(ctx, 100*time.Millisecond, errGone)
	}
	canceled, late := context.Canceled, context.DeadlineExceeded
	for name, tc := range map[string]struct {
		caller  caller
		is      []error
		not     error
		message string
	}{
		"canceled": {leaves, errs(resilience.CodeCanceled, canceled, errGone), late, "The call was canceled"},
		"a shorter deadline": {
			hurries, errs(timedOut, late, errGone), canceled, "Tool 'x' exceeded timeout of 100ms",
		},
		"a later deadline": {
			withTimeout(2 * time.Second), errs(timedOut, late), canceled, "Tool 'x' exceeded timeout of 1s",
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			ctx, cancel := tc.caller(t.Context())
			defer cancel()

			var cause error
			_, err := resilience.WithTimeout(ctx, "x", time.Second, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return 0, errBoom
			})
			synctest.Wait()

			for _, e := range []error{err, cause} {
				for _, target := range tc.is {
					assert.ErrorIs(t, e, target)
				}
				assert.NotErrorIs(t, e, tc.not)
				var re *resilience.Error
				require.ErrorAs(t, e, &re)
				assert.Equal(t, tc.message, re.Message)
			}
		})
	}
}

func TestWithTimeoutDoesNotCallItsFunctionIfTheCallIsInvalid(t *testing.T) {
	canceled, late := endedContexts(t)
	now, fn := t.Context(), notCalled(t)
	for name, tc := range map[string]struct {
		ctx     context.Context
		tool    string
		timeout time.Duration
		fn      toolFunc
		want    string
	}{
		"empty name":                {now, "", time.Second, fn, "VALIDATION_ERROR: The tool's name is empty"},
		"zero timeout":              {now, "x", 0, fn, "VALIDATION_ERROR: timeout is 0s: it must be positive"},
		"negative timeout":          {now, "x", -1, fn, "VALIDATION_ERROR: timeout is -1ns: it must be positive"},
		"nil function":              {now, "x", 1, nil, "TOOL_NOT_FOUND: Tool 'x' not found: its function is nil"},
		"canceled context":          {canceled, "x", time.Second, fn, "CANCELED: The call was canceled"},
		"context past its deadline": {late, "x", time.Second, fn, "TIMEOUT: Tool 'x' timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resilience.WithTimeout(tc.ctx, tc.tool, tc.timeout, tc.fn)

			assert.EqualError(t, err, tc.want)
			var e *resilience.Error
			require.ErrorAs(t, err, &e)
			assert.NoError(t, e.Err, "the code says it all")
		})
	}
	assert.PanicsWithValue(t, "resilience: nil context", func() {
		_, _ = resilience.WithTimeout(noContext, "x", time.Second, notCalled(t))
	})
}
