package main

import (
	"testing"

	"github.com/seed8d1e2389/resilience/examples/chromiumtest"
	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) {
	require.NoError(t, run(t.Context(), t.Output(), ""))
}

// The page is a real one in headless Chromium, which must be available or installable.
func TestDemoInChromium(t *testing.T) {
	require.NoError(t, run(t.Context(), t.Output(), chromiumtest.Path(t)))
}
