package resilience_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// metaTimeout and metaDebug return the _meta of a request with that option.
func metaTimeout(v any) map[string]any { return map[string]any{resilience.MetaTimeout: v} }
func metaDebug(v any) map[string]any   { return map[string]any{resilience.MetaDebug: v} }

func TestForRequestAppliesAllowedOptionsOfMeta(t *testing.T) {
	const unchanged = 60 * time.Second
	both := map[string]any{resilience.MetaDebug: true, resilience.MetaTimeout: 1.0}
	malformed := map[string]any{resilience.MetaDebug: 7, resilience.MetaTimeout: "x"}
	number := json.Number("2.5")
	longest := time.Duration(math.MaxInt64).Seconds() // rounded up to more than a duration has room for
	for name, tc := range map[string]struct {
		meta                     map[string]any
		allowDebug, allowTimeout bool
		took                     time.Duration
		details                  bool
	}{
		"no options":             {allowDebug: true, allowTimeout: true, took: unchanged},
		"not allowed":            {meta: both, took: unchanged},
		"malformed, not allowed": {meta: malformed, took: unchanged},
		"debug":                  {meta: metaDebug(true), allowDebug: true, took: unchanged, details: true},
		"no debug":               {meta: metaDebug(false), allowDebug: true, allowTimeout: true, took: unchanged},
		"both":                   {meta: both, allowDebug: true, allowTimeout: true, took: time.Second, details: true},
		"timeout":                {meta: metaTimeout(1.5), allowTimeout: true, took: 1500 * time.Millisecond},
		"timeout, int":           {meta: metaTimeout(2), allowTimeout: true, took: 2 * time.Second},
		"timeout, int64":         {meta: metaTimeout(int64(2)), allowTimeout: true, took: 2 * time.Second},
		"timeout, json.Number":   {meta: metaTimeout(number), allowTimeout: true, took: 2500 * time.Millisecond},
		"timeout, longest":       {meta: metaTimeout(longest), allowTimeout: true, took: unchanged},
		"timeout, shortest":      {meta: metaTimeout(1e-9), allowTimeout: true, took: 1},
		"timeout, very long":     {meta: metaTimeout(1e300), allowTimeout: true, took: unchanged},
	} {
		runInBubble(t, name, func(t *testing.T) {
			request := resilience.Request{
				RequestInfo:  resilience.RequestInfo{Meta: tc.meta},
				AllowDebug:   tc.allowDebug,
				AllowTimeout: tc.allowTimeout,
			}

			g := newGuard(t, resilience.Config{})
			r := resilience.Run(t.Context(), g, "x", untilDone, resilience.ForRequest(request))

			assert.Equal(t, tc.took, r.Duration)
			assert.Equal(t, tc.details, r.Err.Details != nil)
		})
	}
}

func TestForRequestFailsIfAnAllowedOptionOfMetaIsInvalid(t *testing.T) {
	for name, tc := range map[string]struct {
		meta map[string]any
		want string
	}{
		"debug of text":           {metaDebug("yes"), resilience.MetaDebug},
		"zero timeout":            {metaTimeout(0.0), resilience.MetaTimeout},
		"negative timeout":        {metaTimeout(-1.0), resilience.MetaTimeout},
		"timeout of no number":    {metaTimeout(math.NaN()), resilience.MetaTimeout},
		"timeout of text":         {metaTimeout("60s"), resilience.MetaTimeout},
		"timeout of wrong number": {metaTimeout(json.Number("x")), resilience.MetaTimeout},
		"timeout beyond numbers":  {metaTimeout(json.Number("1e400")), resilience.MetaTimeout},
		"null timeout":            {metaTimeout(nil), resilience.MetaTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			request := resilience.Request{
				RequestInfo:  resilience.RequestInfo{Meta: tc.meta},
				AllowDebug:   tc.want == resilience.MetaDebug,
				AllowTimeout: tc.want == resilience.MetaTimeout,
			}

			g := newGuard(t, resilience.Config{})
			r := resilience.Run(t.Context(), g, "x", notCalled(t), resilience.ForRequest(request))

			require.ErrorIs(t, r.Err, resilience.CodeValidation)
			assert.Contains(t, r.Err.Message, tc.want)
			assert.Equal(t, "x", r.Err.Tool)
			assert.Zero(t, r.Attempts)
		})
	}
}

func TestForRequestSharesTheStateOfUnknownTools(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"listed": {}}})
	for _, tool := range []string{"listed", "known", "made up", "made up too"} {
		r := resilience.Request{Unknown: strings.HasPrefix(tool, "made up")}
		_, err := resilience.Do(t.Context(), g, tool, succeed, resilience.ForRequest(r))
		require.NoError(t, err)
	}

	var names []string
	for _, h := range g.Health() {
		names = append(names, h.Tool)
	}
	assert.Equal(t, []string{"(others)", "known", "listed"}, names)
}

func TestForRequestAsksForTheEffectOnceAfterAFailure(t *testing.T) {
	g := newGuard(t, resilience.Config{
		Effect: resilience.Idempotent,
		Tools:  map[string]resilience.Tool{"listed": {}},
		Retry:  resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}},
	})
	asked := 0
	effect := func(e resilience.Effect) func() resilience.Effect {
		return func() resilience.Effect { asked++; return e }
	}
	attempts := func(tool string, effect func() resilience.Effect) int {
		r := resilience.Request{Effect: effect}
		return resilience.Run(t.Context(), g, tool, failing(9, errBoom), resilience.ForRequest(r)).Attempts
	}

	assert.Equal(t, 4, attempts(strings.Repeat("l", 300), nil), "Config.Effect")
	assert.Equal(t, 4, attempts("a", effect(resilience.ReadOnly)))
	assert.Equal(t, 1, asked, "once for a call")
	assert.Equal(t, 1, attempts("b", effect(resilience.NonIdempotent)))
	assert.Equal(t, 4, attempts("c", effect(resilience.EffectUnknown)), "Config.Effect applies")
	assert.Equal(t, 4, attempts("d", func() resilience.Effect { panic("effect") }))
	assert.Equal(t, 4, attempts("e", nil))

	asked = 0
	assert.Equal(t, 1, attempts("listed", effect(resilience.ReadOnly)), "the Config knows better")
	_, err := resilience.Do(t.Context(), g, "a", succeed,
		resilience.ForRequest(resilience.Request{Effect: effect(resilience.ReadOnly)}))
	assert.NoError(t, err)
	assert.Zero(t, asked, "not if it isn't needed")
}

func TestForRequestTakesRawArguments(t *testing.T) {
	g := newGuard(t, resilience.Config{Debug: true})
	details := func(arguments any, more ...resilience.Option) map[string]any {
		opts := append(more, resilience.ForRequest(resilience.Request{Arguments: arguments}))
		return resilience.Run(t.Context(), g, "x", failing(9, errBoom), opts...).Err.Details
	}

	redacted := map[string]any{"apiKey": "[REDACTED]", "n": json.Number("1")}
	assert.Equal(t, redacted, details(json.RawMessage(`{"apiKey":"a","n":1}`))["arguments"])
	assert.Equal(t, map[string]any{"n": 1}, details(map[string]any{"n": 1})["arguments"])
	assert.Equal(t, "[unprintable]", details(json.RawMessage(`{`))["arguments"])
	assert.NotContains(t, details(json.RawMessage(nil)), "arguments")
	assert.NotContains(t, details(json.RawMessage{}), "arguments")
	assert.NotContains(t, details(nil), "arguments")
	assert.Equal(t, map[string]any{"n": 2}, details(nil, resilience.Args(map[string]any{"n": 2}))["arguments"])
}

func TestAgentHealthHasNoErrorsAndOmitsTools(t *testing.T) {
	assert.Equal(t, `{"tools":[]}`, string(newGuard(t, resilience.Config{}).AgentHealth()))

	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"b": {}, "a": {}}})
	_, _ = resilience.Do(t.Context(), g, "b", failing(9, resilience.MarkPermanent(errBoom)))
	_, _ = resilience.Do(t.Context(), g, "tool_health", succeed)
	require.NotNil(t, g.Health()[1].LastError)

	assert.Equal(t, `{"tools":[{"tool":"a","available":true,"breaker":"a","state":"closed",`+
		`"consecutiveFailures":0,"inFlight":0,"abandoned":0},`+
		`{"tool":"b","available":true,"breaker":"b","state":"closed",`+
		`"consecutiveFailures":1,"inFlight":0,"abandoned":0}]}`, string(g.AgentHealth("tool_health")))
}

// A name that a client has made up is no news for the agents of others.
func TestAgentHealthHasOnlyToolsThatExist(t *testing.T) {
	type outcome = func(context.Context) (int, error)
	fails := func(err error) outcome { return func(context.Context) (int, error) { return 0, err } }
	own := func(code resilience.Code) outcome { return fails(&resilience.Error{Code: code}) }
	request := resilience.ForRequest(resilience.Request{Unexplained: resilience.ClassNeutral})
	short := resilience.Timeout(time.Second)
	for name, tc := range map[string]struct {
		fn    outcome
		opts  []resilience.Option
		shown bool
	}{
		"works":              {succeed, []resilience.Option{request}, true},
		"fails":              {fails(errBoom), []resilience.Option{request}, true},
		"fails in its words": {own("OUT_OF_PAPER"), []resilience.Option{request}, true},
		"asks":               {fails(resilience.ErrUnfinished), []resilience.Option{request}, true},
		"hangs":              {untilDone, []resilience.Option{request}, true},
		"for too short":      {untilDone, []resilience.Option{request, short}, false},
		"rejects":            {fails(resilience.MarkInvalid(errBoom)), []resilience.Option{request}, false},
		"doesn't exist":      {own(resilience.CodeToolNotFound), []resilience.Option{request}, false},
		"is overloaded":      {own(resilience.CodeOverloaded), []resilience.Option{request}, false},
		"is shutting down":   {own(resilience.CodeShuttingDown), []resilience.Option{request}, false},
		"is shut":            {own(resilience.CodeCircuitOpen), []resilience.Option{request}, false},
		"is called off":      {own(resilience.CodeCanceled), []resilience.Option{request}, false},
		"leaves":             {fails(context.Canceled), []resilience.Option{request}, true}, // the tool, not the caller
		"of the program":     {own(resilience.CodeToolNotFound), nil, true},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := newGuard(t, resilience.Config{})
			_, _ = resilience.Do(t.Context(), g, "x", tc.fn, tc.opts...)
			assert.Len(t, g.Health(), 1)
			assert.Equal(t, tc.shown, strings.Contains(string(g.AgentHealth()), `"x"`))
		})
	}

	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"listed": {}}})
	_, _ = resilience.Do(t.Context(), g, "listed", own(resilience.CodeValidation), request)
	unknown := resilience.ForRequest(resilience.Request{Unknown: true})
	_, _ = resilience.Do(t.Context(), g, "x", own(resilience.CodeValidation), unknown)
	assert.Contains(t, string(g.AgentHealth()), `"listed"`)
	assert.NotContains(t, string(g.AgentHealth()), "others")
}

func TestTimeoutCountsFromWhenTheRequestWasReceived(t *testing.T) {
	for name, tc := range map[string]struct {
		received, left  time.Duration
		calls, failures int
	}{
		"a moment ago":            {-20 * time.Millisecond, 30 * time.Millisecond, 1, 1},
		"half of the timeout ago": {-25 * time.Millisecond, 25 * time.Millisecond, 1, 1},
		"long ago":                {-30 * time.Millisecond, 20 * time.Millisecond, 1, 0},
		"just the timeout ago":    {-50 * time.Millisecond, 0, 0, 0},
		"too long ago":            {-time.Hour, 0, 0, 0},
		"in the future":           {time.Hour, 50 * time.Millisecond, 1, 1},
	} {
		for _, opts := range [][]resilience.Option{nil, {resilience.Debug(), resilience.Args(map[string]any{"a": 1})}} {
			runInBubble(t, fmt.Sprint(name, len(opts)), func(t *testing.T) {
				g := guardWith(t, resilience.Tool{Timeout: 50 * time.Millisecond})
				start := time.Now()
				request := resilience.ForRequest(resilience.Request{Received: start.Add(tc.received)})

				r := resilience.Run(t.Context(), g, "x", untilDone, append(opts, request)...)
				assert.ErrorIs(t, r.Err, resilience.CodeTimeout)
				assert.Equal(t, tc.left, time.Since(start))
				assert.Equal(t, tc.calls, r.Attempts)
				assert.Equal(t, tc.failures, g.Health()[0].ConsecutiveFailures)
				synctest.Wait()
			})
		}
	}
}

// The tool had 3s of the 12s that progress could have given it, or 40s of the 100s that the call allows.
func TestATimeoutMostOfWhichHadPassedBeforeIsNotCounted(t *testing.T) {
	longer := []resilience.Option{resilience.Timeout(100 * time.Second)}
	for name, tc := range map[string]struct {
		maximum, received time.Duration
		opts              []resilience.Option
		failures          int
	}{
		"of the maximum":           {12 * time.Second, 9 * time.Second, nil, 0},
		"less of the maximum":      {20 * time.Second, 9 * time.Second, nil, 1},
		"of a longer timeout":      {101 * time.Second, 60 * time.Second, longer, 0},
		"less of a longer timeout": {101 * time.Second, 40 * time.Second, longer, 1},
	} {
		runInBubble(t, name, func(t *testing.T) {
			g := guardWith(t, resilience.Tool{Timeout: 10 * time.Second, MaxTimeout: tc.maximum})
			request := resilience.ForRequest(resilience.Request{Received: time.Now().Add(-tc.received)})
			_, err := resilience.Do(t.Context(), g, "x", func(ctx context.Context) (int, error) {
				for ctx.Err() == nil {
					resilience.ReportProgress(ctx)
					time.Sleep(time.Second)
				}
				return 0, ctx.Err()
			}, append(tc.opts, request)...)
			assert.ErrorIs(t, err, resilience.CodeTimeout)
			assert.Equal(t, tc.failures, g.Breaker("x").Failures())
		})
	}
}

// Only the timeout counts from when the request was received.
func TestARequestThatHasWaitedIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configWith(resilience.Tool{Effect: resilience.ReadOnly})
		cfg.Retry = resilience.Retry{}
		r := resilience.Run(t.Context(), newGuard(t, cfg), "x", failing(1, errBoom),
			resilience.ForRequest(resilience.Request{Received: time.Now().Add(-6 * time.Second)}))
		assert.Nil(t, r.Err)
		assert.Equal(t, 2, r.Attempts)
	})
}

// A slowText takes its time to be written.
type slowText struct{}

func (slowText) MarshalJSON() ([]byte, error) {
	time.Sleep(30 * time.Millisecond)
	return []byte(`"slow"`), nil
}

// Arguments that are written slowly take nothing of the tool's time.
func TestTimeoutBeginsOnceTheArgumentsAreRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWith(t, resilience.Tool{Timeout: 50 * time.Millisecond})
		slow := resilience.Args(map[string]any{"a": slowText{}})
		_, err := resilience.Do(t.Context(), g, "x", hang(40*time.Millisecond), resilience.Debug(), slow)
		assert.NoError(t, err)
	})
}

func TestCheckToolsWarnsOnceOfEachNameThatTheServerLacks(t *testing.T) {
	var out strings.Builder
	g := newGuard(t, resilience.Config{
		Tools: map[string]resilience.Tool{"search": {}, "serach": {}, "read": {}},
		Log:   slog.New(slog.NewTextHandler(&out, nil)),
	})
	for range 3 {
		g.CheckTools([]string{"search", "read", "write"})
	}
	g.CheckTools([]string{"search"})
	require.NoError(t, g.Flush(t.Context()))
	assert.Equal(t, 1, strings.Count(out.String(), "tool=serach"), out.String())
	assert.Equal(t, 1, strings.Count(out.String(), "tool=read"))
	assert.NotContains(t, out.String(), "tool=search")
}

func TestRequestTurnsDebugOnButNotOff(t *testing.T) {
	for name, tc := range map[string]struct {
		debug, allowed bool
		meta           any
		want           bool
	}{
		"on":                     {meta: true, allowed: true, want: true},
		"on, not allowed":        {meta: true},
		"off":                    {meta: false, allowed: true},
		"off, on by the program": {debug: true, meta: false, allowed: true, want: true},
	} {
		info := resilience.RequestInfo{Meta: map[string]any{resilience.MetaDebug: tc.meta}}
		request := resilience.ForRequest(resilience.Request{RequestInfo: info, AllowDebug: tc.allowed})
		options := []resilience.Option{request}
		if tc.debug {
			options = []resilience.Option{resilience.Debug(), request}
		}
		r := resilience.Run(t.Context(), guardWith(t, resilience.Tool{}), "x", failing(9, errBoom), options...)
		assert.Equal(t, tc.want, r.Err.Details != nil, name)
	}
}
