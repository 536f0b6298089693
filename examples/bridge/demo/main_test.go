package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) {
	require.NoError(t, run(t.Context(), t.Output(), ""))
}

// The page is a real one in headless Chromium, which must be available or installable.
func TestDemoInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short, Chromium is neither started nor installed")
	}
	require.NoError(t, run(t.Context(), t.Output(), chromium(t)))
}
