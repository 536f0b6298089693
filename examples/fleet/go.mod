module github.com/seed8d1e2389/resilience/examples/fleet

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/redis/go-redis/v9 v9.22.0
	github.com/seed8d1e2389/resilience v0.1.0
	github.com/seed8d1e2389/resilience/adapters/redis v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cenkalti/backoff/v4 v4.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/seed8d1e2389/resilience => ../..

replace github.com/seed8d1e2389/resilience/adapters/redis => ../../adapters/redis
