package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) {
	for _, server := range servers {
		require.NoError(t, run(t.Context(), server))
	}
}
