package resilience_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
)

func TestNewNamesEveryInvalidField(t *testing.T) {
	_, err := resilience.New(resilience.Config{
		Timeouts: resilience.Timeouts{"": time.Second, "slow": 0, resilience.Quick: -time.Second},
		Tools: map[string]resilience.Tool{
			"":         {},
			"(others)": {},
			"a": {
				Tier: "sluggish", Timeout: -1, MaxTimeout: -2,
				Retry: &resilience.Retry{Backoff: resilience.Backoff{Base: -3}},
			},
			"b": {Timeout: 2 * time.Second, MaxTimeout: time.Second, Breaker: "db", MaxInFlight: -8, MaxWait: -9},
			"c": {Tier: resilience.Heavy, MaxTimeout: 119 * time.Second, MaxWait: 61 * time.Second},
		},
		Breaker:      resilience.BreakerConfig{Failures: -4},
		Breakers:     map[string]resilience.BreakerConfig{"d": {}, "db": {ProbeInterval: -7}},
		Retry:        resilience.Retry{MaxRetries: -1, Backoff: resilience.Backoff{Jitter: 7}},
		MaxAbandoned: -6,
		Suggestions:  map[resilience.Code]string{"TIMEUOT": "x", resilience.CodeTimeout: "y"},
	})

	assert.EqualError(t, err, strings.Join([]string{
		`resilience: wrong Config: Timeouts[""] has no name`,
		`Timeouts["quick"] is -1s: it must be positive`,
		`Timeouts["slow"] is 0s: it must be positive`,
		`Tools[""] has no name of its own: it must be neither empty nor "(others)"`,
		`Tools["(others)"] has no name of its own: it must be neither empty nor "(others)"`,
		`Tools["a"].Tier is "sluggish": it must be one of ["" "heavy" "quick" "slow"], ` +
			`or be given a timeout in Timeouts`,
		`Tools["a"].Timeout is -1ns: it must not be negative (0 is the tier's)`,
		`Tools["a"].MaxTimeout is -2ns: it must not be negative (0 is the tool's timeout)`,
		`Tools["a"].Retry.Backoff.Base is -3ns: it must not be negative (0 is the default)`,
		`Tools["b"].MaxTimeout is 1s: it must not be under the tool's timeout of 2s`,
		`Tools["b"].MaxInFlight is -8: it must not be negative (0 is any number)`,
		`Tools["b"].MaxWait is -9ns: it must not be negative (0 is none)`,
		`Tools["c"].MaxTimeout is 1m59s: it must not be under the tool's timeout of 2m0s`,
		`Tools["c"].MaxWait is 1m1s: it must not be over half the tool's timeout of 2m0s`,
		`Tools["c"].MaxWait is set without a MaxInFlight to wait for`,
		`Breaker.Failures is -4: it must not be negative (0 is the default)`,
		`Breakers["d"] is of no tool: it must be one of ["" "(others)" "a" "c" "db"]`,
		`Breakers["db"].ProbeInterval is -7ns: it must not be negative (0 is the default)`,
		`Retry.Backoff.Jitter is 7: it must be FullJitter, SmallJitter or NoJitter`,
		`MaxAbandoned is -6: it must not be negative (0 is 64)`,
		`Suggestions["TIMEUOT"] is of no code: it must be one of ["CANCELED" "CIRCUIT_OPEN" "CONNECTION_LOST" ` +
			`"OVERLOADED" "RATE_LIMITED" "RETRY_EXHAUSTED" "SHUTTING_DOWN" "TIMEOUT" "TOOL_FAILED" "TOOL_NOT_FOUND" ` +
			`"VALIDATION_ERROR"]`,
	}, "\n"))
}

func TestMustPanicsWithTheErrorOfNew(t *testing.T) {
	assert.PanicsWithError(t, errBoom.Error(), func() { resilience.Must(nil, errBoom) })
	assert.NotNil(t, resilience.Must(resilience.New(resilience.Config{})))
}

// Observers and Classify of the Config do what these do for the primitives.
func TestConfigRefusesTheHooksOfThePrimitives(t *testing.T) {
	onRetry := resilience.Retry{OnRetry: func(int, time.Duration, error) {}}
	onChange := resilience.BreakerConfig{OnChange: func(string, resilience.State, resilience.State) {}}
	tools := map[string]resilience.Tool{"x": {Retry: &onRetry}}
	for field, cfg := range map[string]resilience.Config{
		"Retry.OnRetry":            {Retry: onRetry},
		`Tools["x"].Retry.OnRetry`: {Tools: tools},
		"Breaker.OnChange":         {Breaker: onChange},
		`Breakers["x"].OnChange`:   {Tools: tools, Breakers: map[string]resilience.BreakerConfig{"x": onChange}},
	} {
		_, err := resilience.New(cfg)
		assert.ErrorContains(t, err, field)
	}
}

func TestGuardKeepsNothingOfTheCallersConfig(t *testing.T) {
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

func TestConfigFromEnvReadsTimeoutsAndDebug(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want resilience.Config
	}{
		"unset":     {},
		"empty":     {env: map[string]string{"X_TIMEOUT_QUICK": "", "X_TIMEOUT_HEAVY": "", "X_DEBUG": ""}},
		"debug off": {env: map[string]string{"X_DEBUG": "false"}},
		"all": {
			env: map[string]string{"X_TIMEOUT_QUICK": "1500", "X_TIMEOUT_HEAVY": "1m30s", "X_DEBUG": "true"},
			want: resilience.Config{Debug: true, Timeouts: resilience.Timeouts{
				resilience.Quick: 1500 * time.Millisecond, resilience.Heavy: 90 * time.Second,
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}

			cfg, err := resilience.ConfigFromEnv("X")
			assert.NoError(t, err)
			assert.Equal(t, tc.want, cfg)
		})
	}
}

func TestConfigFromEnvNamesInvalidVariables(t *testing.T) {
	const timeoutFormat = `it must be a positive number of milliseconds ("90000") or a positive duration ("90s")`
	t.Setenv("X_DEBUG", "yes")
	t.Setenv("X_TIMEOUT_QUICK", "1s")
	for _, timeout := range []string{
		"0", "0s", "-5", "-1s", "soon", " ", "9223372036854775807", "99999999999999999999",
	} {
		t.Setenv("X_TIMEOUT_HEAVY", timeout)
		cfg, err := resilience.ConfigFromEnv("X")
		assert.EqualError(t, err, "resilience: wrong environment: X_TIMEOUT_HEAVY is \""+timeout+"\": "+timeoutFormat+
			"\nX_DEBUG is \"yes\": it must be \"true\" or \"false\"")
		assert.Equal(t, resilience.Config{}, cfg)
	}
}
