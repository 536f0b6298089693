package main

import (
	"testing"

	"github.com/seed8d1e2389/resilience/benchmarks/peers"
	"github.com/stretchr/testify/assert"
)

// A tool takes at most one and a half times the memory of failsafe-go's policies for one.
func TestMemoryOfATool(t *testing.T) {
	_, ours := measureTools(peers.Only("guard")[0], false)
	_, theirs := measureTools(peers.Only("failsafe")[0], false)
	assert.LessOrEqual(t, ours, theirs*3/2)
}
