module github.com/seed8d1e2389/resilience/property

go 1.25.0

require github.com/seed8d1e2389/resilience v0.1.0

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	pgregory.net/rapid v1.3.0
)

replace github.com/seed8d1e2389/resilience => ../
