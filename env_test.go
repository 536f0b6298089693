package resilience_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed8d1e2389/resilience"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
			want: resilience.Config{
				Debug: true,
				Timeouts: resilience.Timeouts{
					resilience.Quick: 1500 * time.Millisecond,
					resilience.Heavy: 90 * time.Second,
				},
			},
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

func TestConfigFromEnvNeedsNoPrefix(t *testing.T) {
	t.Setenv("TIMEOUT_QUICK", "2s")
	cfg, err := resilience.ConfigFromEnv("")
	require.NoError(t, err)
	assert.Equal(t, 2*time.Second, cfg.Timeouts[resilience.Quick])
}

// Whatever the environment says, it is either an error or a Config that New accepts.
func FuzzConfigFromEnv(f *testing.F) {
	f.Add("90s", "true")
	f.Add("9223372036855", "1")
	f.Fuzz(func(t *testing.T, timeout, debug string) {
		if strings.ContainsRune(timeout+debug, 0) {
			t.Skip("no variable can have this value")
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
