package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPauseReturnsOnceAllHasStopped(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1000 & while :; do :; done")
	setGroup(cmd)
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer kill(cmd)

	for range 20 {
		assert.False(t, stopped(cmd.Process.Pid))
		require.NoError(t, pause(t.Context(), cmd))
		require.True(t, stopped(cmd.Process.Pid))
		require.NoError(t, resume(cmd))
	}
}
