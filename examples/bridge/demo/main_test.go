package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) {
	require.NoError(t, run(t.Context(), t.Output(), ""))
}

// The same with a real page in headless Chromium, where there is one or it can be
// installed.
func TestDemoInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short Chromium is neither started nor installed")
	}
	require.NoError(t, run(t.Context(), t.Output(), chromium(t)))
}
