module github.com/seed8d1e2389/resilience/adapters/console

go 1.25.0

require github.com/seed8d1e2389/resilience v0.1.0

require (
	github.com/cenkalti/backoff/v4 v4.0.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
)

replace github.com/seed8d1e2389/resilience => ../..
