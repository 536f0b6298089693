//go:build race

package redisfleet

// members is how many the simulation has: the race detector makes it ten times as slow.
const members = 100
