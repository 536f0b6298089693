package resilience_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := resilience.New(resilience.Config{
		Timeouts: resilience.Timeouts{"": time.Second, "slow": 0, resilience.Quick: -time.Second},
		Tools: map[string]resilience.Tool{
			"":  {},
			"a": {Tier: "sluggish", Timeout: -1, MaxTimeout: -2, Effect: 9, Retry: &resilience.Retry{Backoff: resilience.Backoff{Base: -3}}},
			"b": {Timeout: 2 * time.Second, MaxTimeout: time.Second},
			"c": {Tier: resilience.Heavy, MaxTimeout: 119 * time.Second},
		},
		Effect:         8,
		Breaker:        resilience.BreakerConfig{Failures: -4},
		Retry:          resilience.Retry{MaxRetries: -1, Backoff: resilience.Backoff{Jitter: 7}},
		AttemptTimeout: -5,
		MaxAbandoned:   -6,
		Suggestions:    map[resilience.Code]string{"TIMEUOT": "x", resilience.CodeTimeout: "y"},
	})
	require.Error(t, err)
	assert.Equal(t, strings.Join([]string{
		`resilience: wrong Config: Timeouts[""] has no name`,
		`Timeouts["quick"] is -1s: it must be positive`,
		`Timeouts["slow"] is 0s: it must be positive`,
		`Tools[""] has no name`,
		`Tools["a"].Tier is "sluggish": it must be one of ["" "heavy" "quick" "slow"], or be given a timeout in Timeouts`,
		`Tools["a"].Timeout is -1ns: it must not be negative (0 is the tier's)`,
		`Tools["a"].MaxTimeout is -2ns: it must not be negative (0 is the tool's timeout)`,
		`Tools["a"].Effect is 9: it must be EffectUnknown, ReadOnly, Idempotent or NonIdempotent`,
		`Tools["a"].Retry.Backoff.Base is -3ns: it must not be negative (0 is the default)`,
		`Tools["b"].MaxTimeout is 1s: it must not be under the tool's timeout of 2s`,
		`Tools["c"].MaxTimeout is 1m59s: it must not be under the tool's timeout of 2m0s`,
		`Effect is 8: it must be EffectUnknown, ReadOnly, Idempotent or NonIdempotent`,
		`Breaker.Failures is -4: it must not be negative (0 is the default)`,
		`Retry.Backoff.Jitter is 7: it must be FullJitter, SmallJitter or NoJitter`,
		`AttemptTimeout is -5ns: it must not be negative (0 is none)`,
		`MaxAbandoned is -6: it must not be negative (0 is 64)`,
		`Suggestions["TIMEUOT"] is of no code: it must be one of ["CANCELED" "CIRCUIT_OPEN" "CONNECTION_LOST" "OVERLOADED" "RETRY_EXHAUSTED" "TIMEOUT" "TOOL_FAILED" "TOOL_NOT_FOUND" "VALIDATION_ERROR"]`,
	}, "\n"), err.Error())
	assert.PanicsWithError(t, err.Error(), func() { resilience.Must(nil, err) })
	assert.NotNil(t, resilience.Must(resilience.New(resilience.Config{})))
	assert.Equal(t, []string{"unknown", "read-only", "idempotent", "non-idempotent", "Effect(9)"}, []string{
		resilience.EffectUnknown.String(), resilience.ReadOnly.String(), resilience.Idempotent.String(), resilience.NonIdempotent.String(), resilience.Effect(9).String()})
}

// A guard keeps nothing of the caller's.
func TestNewCopies(t *testing.T) {
	cfg := resilience.Config{
		Timeouts: resilience.Timeouts{resilience.Quick: time.Second},
		Tools:    map[string]resilience.Tool{"a": {}},
	}
	g := newGuard(t, cfg)
	cfg.Timeouts[resilience.Quick] = time.Minute
	cfg.Tools["b"] = resilience.Tool{Timeout: time.Hour}
	assert.Equal(t, time.Second, g.Timeout("a"))
	assert.Equal(t, time.Second, g.Timeout("b"))
}

func TestConfigFromEnv(t *testing.T) {
	const format = `it must be a positive number of milliseconds ("90000") or a positive duration ("90s")`
	for name, tc := range map[string]struct {
		env  map[string]string
		want resilience.Config
		err  string
	}{
		"unset": {},
		"empty": {env: map[string]string{"X_TIMEOUT_QUICK": "", "X_TIMEOUT_HEAVY": "", "X_DEBUG": ""}},
		"all": {
			env:  map[string]string{"X_TIMEOUT_QUICK": "1500", "X_TIMEOUT_HEAVY": "1m30s", "X_DEBUG": "true"},
			want: resilience.Config{Debug: true, Timeouts: resilience.Timeouts{resilience.Quick: 1500 * time.Millisecond, resilience.Heavy: 90 * time.Second}},
		},
		"debug off":       {env: map[string]string{"X_DEBUG": "false"}},
		"zero":            {env: map[string]string{"X_TIMEOUT_QUICK": "0"}, err: `X_TIMEOUT_QUICK is "0": ` + format},
		"zero duration":   {env: map[string]string{"X_TIMEOUT_QUICK": "0s"}, err: `X_TIMEOUT_QUICK is "0s": ` + format},
		"negative":        {env: map[string]string{"X_TIMEOUT_HEAVY": "-5"}, err: `X_TIMEOUT_HEAVY is "-5": ` + format},
		"overflow":        {env: map[string]string{"X_TIMEOUT_HEAVY": "9223372036854775807"}, err: `X_TIMEOUT_HEAVY is "9223372036854775807": ` + format},
		"larger overflow": {env: map[string]string{"X_TIMEOUT_HEAVY": "99999999999999999999"}, err: `X_TIMEOUT_HEAVY is "99999999999999999999": ` + format},
		"words":           {env: map[string]string{"X_TIMEOUT_HEAVY": "soon"}, err: `X_TIMEOUT_HEAVY is "soon": ` + format},
		"space":           {env: map[string]string{"X_TIMEOUT_HEAVY": " "}, err: `X_TIMEOUT_HEAVY is " ": ` + format},
		"debug": {
			env: map[string]string{"X_DEBUG": "yes", "X_TIMEOUT_QUICK": "-1s"},
			err: `X_TIMEOUT_QUICK is "-1s": ` + format + "\n" + `X_DEBUG is "yes": it must be "true" or "false"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			cfg, err := resilience.ConfigFromEnv("X")
			if tc.err != "" {
				assert.EqualError(t, err, "resilience: wrong environment: "+tc.err)
			} else {
				assert.NoError(t, err)
			}
			assert.Equal(t, tc.want, cfg)
			_, err = resilience.New(cfg)
			assert.NoError(t, err)
		})
	}
	t.Setenv("TIMEOUT_QUICK", "2s")
	cfg, err := resilience.ConfigFromEnv("")
	require.NoError(t, err)
	assert.Equal(t, 2*time.Second, cfg.Timeouts[resilience.Quick])
}

// Whatever the environment says, it is either an error or a Config that New takes.
func FuzzConfigFromEnv(f *testing.F) {
	f.Add("90s", "true")
	f.Add("9223372036855", "1")
	f.Fuzz(func(t *testing.T, timeout, debug string) {
		if strings.ContainsRune(timeout+debug, 0) {
			t.Skip("no such variable can be")
		}
		t.Setenv("X_TIMEOUT_QUICK", timeout)
		t.Setenv("X_DEBUG", debug)
		cfg, err := resilience.ConfigFromEnv("X")
		if err != nil {
			require.Equal(t, resilience.Config{}, cfg)
			return
		}
		g, err := resilience.New(cfg)
		require.NoError(t, err)
		require.Positive(t, g.Timeout("x"))
	})
}
