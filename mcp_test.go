package resilience_test

import (
	"encoding/json"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEffectFromHints(t *testing.T) {
	assert.Equal(t, resilience.NonIdempotent, resilience.EffectFromHints(false, false))
	assert.Equal(t, resilience.Idempotent, resilience.EffectFromHints(false, true))
	assert.Equal(t, resilience.ReadOnly, resilience.EffectFromHints(true, false))
	assert.Equal(t, resilience.ReadOnly, resilience.EffectFromHints(true, true))
}

// meta is the _meta of a request with the option timeout.
func meta(timeout any) map[string]any { return map[string]any{resilience.MetaTimeout: timeout} }

func TestForRequestAppliesAllowedOptionsOfMeta(t *testing.T) {
	const unchanged = 60 * time.Second
	both := map[string]any{resilience.MetaDebug: true, resilience.MetaTimeout: 1.0}
	malformed := map[string]any{resilience.MetaDebug: 7, resilience.MetaTimeout: "x"}

	for name, tc := range map[string]struct {
		meta           map[string]any
		debug, timeout bool // allowed
		want           time.Duration
		details        bool
		err            string
	}{
		"none":                 {nil, true, true, unchanged, false, ""},
		"not allowed":          {both, false, false, unchanged, false, ""},
		"malformed, ignored":   {malformed, false, false, unchanged, false, ""},
		"debug":                {map[string]any{resilience.MetaDebug: true}, true, false, unchanged, true, ""},
		"no debug":             {map[string]any{resilience.MetaDebug: false}, true, true, unchanged, false, ""},
		"timeout":              {meta(1.5), false, true, 1500 * time.Millisecond, false, ""},
		"both":                 {both, true, true, time.Second, true, ""},
		"whole number":         {meta(2), false, true, 2 * time.Second, false, ""},
		"whole number, 64 bit": {meta(int64(2)), false, true, 2 * time.Second, false, ""},
		"json.Number":          {meta(json.Number("2.5")), false, true, 2500 * time.Millisecond, false, ""},
		"very long":            {meta(1e300), false, true, unchanged, false, ""},
		"zero":                 {meta(0.0), false, true, 0, false, "timeout"},
		"negative":             {meta(-1.0), false, true, 0, false, "timeout"},
		"not a number":         {meta(math.NaN()), false, true, 0, false, "timeout"},
		"text":                 {meta("60s"), false, true, 0, false, "timeout"},
		"wrong json.Number":    {meta(json.Number("x")), false, true, 0, false, "timeout"},
		"null":                 {meta(nil), false, true, 0, false, "timeout"},
		"debug of text":        {map[string]any{resilience.MetaDebug: "yes"}, true, false, 0, false, "debug"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, resilience.Config{})
				r := resilience.Run(t.Context(), g, "x", obey, resilience.ForRequest(resilience.Request{
					RequestInfo:  resilience.RequestInfo{Meta: tc.meta},
					AllowDebug:   tc.debug,
					AllowTimeout: tc.timeout,
				}))

				if tc.err != "" {
					require.ErrorIs(t, r.Err, resilience.CodeValidation)
					assert.Contains(t, r.Err.Message, "resilience/"+tc.err)
					assert.Equal(t, "x", r.Err.Tool)
					assert.Zero(t, r.Attempts)
					return
				}
				assert.Equal(t, tc.want, r.Duration)
				assert.Equal(t, tc.details, r.Err.Details != nil)
			})
		})
	}
}

func TestForRequestSharesTheStateOfUnknownTools(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"listed": {}}})
	for _, tool := range []string{"listed", "known", "made up"} {
		r := resilience.Request{Known: tool == "known"}
		_, err := resilience.Do(t.Context(), g, tool, failing(0, nil), resilience.ForRequest(r))
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
		r := resilience.Request{Known: true, Effect: effect}
		return resilience.Run(t.Context(), g, tool, failing(9, errBoom), resilience.ForRequest(r)).Attempts
	}

	assert.Equal(t, 4, attempts("a", effect(resilience.ReadOnly)))
	assert.Equal(t, 1, asked, "once for a call")
	assert.Equal(t, 1, attempts("b", effect(resilience.NonIdempotent)))
	assert.Equal(t, 4, attempts("c", effect(resilience.EffectUnknown)), "Config.Effect applies")
	assert.Equal(t, 4, attempts("d", func() resilience.Effect { panic("effect") }))
	assert.Equal(t, 4, attempts("e", nil))

	asked = 0
	assert.Equal(t, 1, attempts("listed", effect(resilience.ReadOnly)), "the Config knows better")
	_, err := resilience.Do(t.Context(), g, "a", failing(0, nil),
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
	assert.NotContains(t, details(nil), "arguments")
	assert.Equal(t, map[string]any{"n": 2}, details(nil, resilience.Args(map[string]any{"n": 2}))["arguments"])
}

func TestAgentHealth(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"b": {}, "a": {}}})
	assert.Equal(t, `{"tools":[]}`, string(newGuard(t, resilience.Config{}).AgentHealth()))
	_, _ = resilience.Do(t.Context(), g, "b", failing(9, resilience.MarkPermanent(errBoom)))
	_, _ = resilience.Do(t.Context(), g, "tool_health", failing(0, nil))
	require.NotNil(t, g.Health()[1].LastError)
	assert.Equal(t, `{"tools":[{"tool":"a","available":true,"breaker":"a","state":"closed","consecutiveFailures":0,"inFlight":0,"abandoned":0},`+
		`{"tool":"b","available":true,"breaker":"b","state":"closed","consecutiveFailures":1,"inFlight":0,"abandoned":0}]}`, string(g.AgentHealth("tool_health")))
}
