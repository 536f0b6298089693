// Package benchmarks measures the guard beside what a program would use instead. It
// holds benchmarks only; README.md says how to run them.
package benchmarks
