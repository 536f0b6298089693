module github.com/seed8d1e2389/resilience/adapters/console

go 1.25.0

require (
	github.com/seed8d1e2389/resilience v0.1.0
	github.com/stretchr/testify v1.8.4
)

require (
	github.com/cenkalti/backoff/v4 v4.0.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/seed8d1e2389/resilience => ../..
