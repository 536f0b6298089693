package resilience_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHintedEffect(t *testing.T) {
	assert.Equal(t, resilience.NonIdempotent, resilience.HintedEffect(false, false))
	assert.Equal(t, resilience.Idempotent, resilience.HintedEffect(false, true))
	assert.Equal(t, resilience.ReadOnly, resilience.HintedEffect(true, false))
	assert.Equal(t, resilience.ReadOnly, resilience.HintedEffect(true, true))
}

func TestMetaOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		meta         map[string]any
		debug, limit bool
		took         time.Duration
		details      bool
		err          string
	}{
		"none":             {nil, true, true, 60 * time.Second, false, ""},
		"not allowed":      {map[string]any{resilience.MetaDebug: true, resilience.MetaLimit: 1.0}, false, false, 60 * time.Second, false, ""},
		"nonsense ignored": {map[string]any{resilience.MetaDebug: 7, resilience.MetaLimit: "x"}, false, false, 60 * time.Second, false, ""},
		"debug":            {map[string]any{resilience.MetaDebug: true}, true, false, 60 * time.Second, true, ""},
		"no debug":         {map[string]any{resilience.MetaDebug: false}, true, true, 60 * time.Second, false, ""},
		"limit":            {map[string]any{resilience.MetaLimit: 1.5}, false, true, 1500 * time.Millisecond, false, ""},
		"whole":            {map[string]any{resilience.MetaLimit: 2}, false, true, 2 * time.Second, false, ""},
		"whole, 64 bits":   {map[string]any{resilience.MetaLimit: int64(2)}, false, true, 2 * time.Second, false, ""},
		"number":           {map[string]any{resilience.MetaLimit: json.Number("2.5")}, false, true, 2500 * time.Millisecond, false, ""},
		"very long":        {map[string]any{resilience.MetaLimit: 1e300}, false, true, 60 * time.Second, false, ""},
		"zero":             {map[string]any{resilience.MetaLimit: 0.0}, false, true, 0, false, "limit"},
		"negative":         {map[string]any{resilience.MetaLimit: -1.0}, false, true, 0, false, "limit"},
		"not a number":     {map[string]any{resilience.MetaLimit: math.NaN()}, false, true, 0, false, "limit"},
		"text":             {map[string]any{resilience.MetaLimit: "60s"}, false, true, 0, false, "limit"},
		"wrong number":     {map[string]any{resilience.MetaLimit: json.Number("x")}, false, true, 0, false, "limit"},
		"null":             {map[string]any{resilience.MetaLimit: nil}, false, true, 0, false, "limit"},
		"debug of text":    {map[string]any{resilience.MetaDebug: "yes"}, true, false, 0, false, "debug"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts, err := resilience.MetaOptions(tc.meta, tc.debug, tc.limit)
				if tc.err != "" {
					require.ErrorIs(t, err, resilience.CodeValidation)
					assert.Contains(t, err.Error(), "resilience/"+tc.err)
					return
				}
				require.NoError(t, err)
				r := resilience.Run(t.Context(), newGuard(t, resilience.Config{}), "x", obey, opts...)
				assert.Equal(t, tc.took, r.Duration)
				assert.Equal(t, tc.details, r.Err.Details != nil)
			})
		})
	}
}

func TestEffectFrom(t *testing.T) {
	g := newGuard(t, resilience.Config{
		Effect: resilience.Idempotent,
		Tools:  map[string]resilience.Tool{"listed": {}},
		Retry:  resilience.Retry{Backoff: resilience.Backoff{Base: 1, Max: 1}},
	})
	asked := 0
	says := func(e resilience.Effect) resilience.Option {
		return resilience.EffectFrom(func() resilience.Effect { asked++; return e })
	}
	run := func(tool string, opt resilience.Option) int {
		return resilience.Run(t.Context(), g, tool, failing(9, errBoom), opt).Attempts
	}
	assert.Equal(t, 4, run("a", says(resilience.ReadOnly)))
	assert.Equal(t, 1, asked, "once for a call")
	assert.Equal(t, 1, run("b", says(resilience.NonIdempotent)))
	assert.Equal(t, 4, run("c", says(resilience.EffectUnknown)), "as the Config says")
	assert.Equal(t, 4, run("d", resilience.EffectFrom(func() resilience.Effect { panic("f") })))
	assert.Equal(t, 4, run("e", resilience.EffectFrom(nil)))
	asked = 0
	assert.Equal(t, 1, run("listed", says(resilience.ReadOnly)), "the Config knows better")
	_, err := resilience.Do(t.Context(), g, "a", func(context.Context) (int, error) { return 0, nil }, says(resilience.ReadOnly))
	assert.NoError(t, err)
	assert.Zero(t, asked, "not if it isn't needed")
}

func TestRawArgs(t *testing.T) {
	g := newGuard(t, resilience.Config{Debug: true})
	r := resilience.Run(t.Context(), g, "x", failing(9, errBoom), resilience.RawArgs(json.RawMessage(`{"apiKey":"a","n":1}`)))
	assert.Equal(t, map[string]any{"apiKey": "[REDACTED]", "n": json.Number("1")}, r.Err.Details["arguments"])
	r = resilience.Run(t.Context(), g, "x", failing(9, errBoom), resilience.RawArgs(json.RawMessage(`{`)))
	assert.Equal(t, "[unprintable]", r.Err.Details["arguments"])
	r = resilience.Run(t.Context(), g, "x", failing(9, errBoom), resilience.RawArgs(nil))
	assert.NotContains(t, r.Err.Details, "arguments")
}

func TestAgentHealth(t *testing.T) {
	g := newGuard(t, resilience.Config{Tools: map[string]resilience.Tool{"b": {}, "a": {}}})
	assert.Equal(t, `{"tools":[]}`, string(newGuard(t, resilience.Config{}).AgentHealth()))
	_, _ = resilience.Do(t.Context(), g, "b", failing(9, resilience.MarkPermanent(errBoom)))
	_, _ = resilience.Do(t.Context(), g, resilience.HealthTool, failing(0, nil))
	require.NotNil(t, g.Health()[1].LastError)
	assert.Equal(t, `{"tools":[{"tool":"a","available":true,"breaker":"a","state":"closed","consecutiveFailures":0,"inFlight":0,"abandoned":0},`+
		`{"tool":"b","available":true,"breaker":"b","state":"closed","consecutiveFailures":1,"inFlight":0,"abandoned":0}]}`, string(g.AgentHealth()))
}
