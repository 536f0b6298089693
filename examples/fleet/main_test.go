package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStory(t *testing.T) {
	story := func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(&out))
		t.Log("\n" + out.String())
		rest := out.String()
		for _, words := range []string{
			"backend  dies",
			"fleet    all of them know",
			"backend  has received 5 requests since it died",
			"fourth   has joined, and its breaker is open",
			"fourth   CIRCUIT_OPEN",
			"backend  comes back",
			"fleet    one call was the probe, and all of them know",
		} {
			var found bool
			_, rest, found = strings.Cut(rest, words)
			require.True(t, found, words)
		}
	}
	t.Run("redis-server, if there is one", story)
	t.Run("Redis in Go", func(t *testing.T) {
		t.Setenv("PATH", "")
		story(t)
	})
}
