module github.com/seed8d1e2389/resilience/adapters/redis

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.0.0
	github.com/seed8d1e2389/resilience v0.1.0
	github.com/stretchr/testify v1.8.4
)

require (
	github.com/cenkalti/backoff/v4 v4.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/seed8d1e2389/resilience => ../..
