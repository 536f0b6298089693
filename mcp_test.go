package resilience_test

import (
	"encoding/json"
	"log/slog"
	"math"
	"strings"

	"testing"
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

	off := resilience.Request{RequestInfo: resilience.RequestInfo{Meta: metaDebug(false)}, AllowDebug: true}
	g := newGuard(t, resilience.Config{Debug: true})
	r := resilience.Run(t.Context(), g, "x", failing(9, errBoom), resilience.Debug(), resilience.ForRequest(off))
	assert.NotNil(t, r.Err.Details, "a request can't turn off the debug of the program")
}

func TestForRequestFailsIfAnAllowedOptionOfMetaIsInvalid(t *testing.T) {
	for name, meta := range map[string]map[string]any{
		"debug of text":           metaDebug("yes"),
		"zero timeout":            metaTimeout(0.0),
		"negative timeout":        metaTimeout(-1.0),
		"timeout of no number":    metaTimeout(math.NaN()),
		"timeout of text":         metaTimeout("60s"),
		"timeout of wrong number": metaTimeout(json.Number("x")),
		"timeout beyond numbers":  metaTimeout(json.Number("1e400")),
		"null timeout":            metaTimeout(nil),
	} {
		t.Run(name, func(t *testing.T) {
			info := resilience.RequestInfo{Meta: meta}
			request := resilience.Request{RequestInfo: info, AllowDebug: true, AllowTimeout: true}

			g := newGuard(t, resilience.Config{})
			r := resilience.Run(t.Context(), g, "x", notCalled(t), resilience.ForRequest(request))

			require.ErrorIs(t, r.Err, resilience.CodeValidation)
			for key := range meta {
				assert.Contains(t, r.Err.Message, key)
			}
			assert.Equal(t, "x", r.Err.Tool)
			assert.Zero(t, r.Attempts)
		})
	}
}

func TestForRequestHasTheEffectOfAToolThatIsListedWithoutOne(t *testing.T) {
	g := newGuard(t, resilience.Config{
		Effect: resilience.Idempotent,
		Tools:  map[string]resilience.Tool{"listed": {}, "with an effect": {Effect: resilience.NonIdempotent}},
		Retry:  resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}},
	})
	for _, tc := range []struct {
		tool     string
		effect   resilience.Effect
		attempts int
	}{
		{"read", resilience.ReadOnly, 4},
		{"write", resilience.NonIdempotent, 1},
		{"unknown", resilience.EffectUnknown, 4}, // Config.Effect
		{"listed", resilience.ReadOnly, 4},
		{"with an effect", resilience.ReadOnly, 1},
	} {
		request := resilience.ForRequest(resilience.Request{Effect: tc.effect})
		r := resilience.Run(t.Context(), g, tc.tool, failing(9, errBoom), request)
		assert.Equal(t, tc.attempts, r.Attempts, tc.tool)
	}
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
	_, _ = resilience.Do(t.Context(), g, "made up", succeed, resilience.ForRequest(resilience.Request{Unknown: true}))
	require.NotNil(t, g.Health()[2].LastError)

	assert.Equal(t, `{"tools":[{"tool":"a","available":true,"breaker":"a","state":"closed",`+
		`"consecutiveFailures":0,"inFlight":0,"abandoned":0},`+
		`{"tool":"b","available":true,"breaker":"b","state":"closed",`+
		`"consecutiveFailures":1,"inFlight":0,"abandoned":0}]}`, string(g.AgentHealth("tool_health")))
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
