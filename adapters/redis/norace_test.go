//go:build !race

package redisfleet

// members is how many the simulation has.
const members = 300

// steps is how many operations are compared in a row.
const steps = 100
