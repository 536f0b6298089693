//go:build !race

package redisfleet

// members is how many the simulation has.
const members = 1000
