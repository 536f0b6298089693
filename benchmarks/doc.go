// Package benchmarks compares the guard with what a program would use in its place. It
// contains only benchmarks and their tests; README.md says how to run them.
package benchmarks
