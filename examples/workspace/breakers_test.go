package workspace_test

import (
	"testing"

	"github.com/seed8d1e2389/resilience/examples/workspace"
	"github.com/stretchr/testify/assert"
)

func TestBreakersReportsABadProbe(t *testing.T) {
	for _, bad := range []string{"backend", "/healthz", "ftp://backend/healthz", "http://", ":"} {
		_, err := workspace.Breakers(bad)
		assert.ErrorContains(t, err, "-probe", bad)
	}

	with, err := workspace.Breakers("http://127.0.0.1:8080/healthz")
	assert.NoError(t, err)
	assert.NotNil(t, with["backend"].Probe)
	without, err := workspace.Breakers("")
	assert.NoError(t, err)
	assert.Empty(t, without)
}
