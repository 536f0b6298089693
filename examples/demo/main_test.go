package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) { require.NoError(t, demo(t.Context())) }
