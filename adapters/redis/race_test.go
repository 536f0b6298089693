//go:build race

package redisfleet

// members is how many the simulation has: the race detector makes it ten times as slow.
const members = 100

// steps is how many operations are compared in a row.
const steps = 40
