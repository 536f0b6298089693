// newest.mod is go.mod with the newest versions of what it requires, which are tested by
//	go test -modfile=newest.mod ./...
// and updated by
//	go get -modfile=newest.mod google.golang.org/{grpc,protobuf,genproto/googleapis/rpc}@latest github.com/stretchr/testify@latest
//	go mod tidy -modfile=newest.mod

module github.com/seed8d1e2389/resilience/adapters/grpc

go 1.26.0

require (
	github.com/seed8d1e2389/resilience v0.1.0
	github.com/stretchr/testify v1.12.1
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/cenkalti/backoff/v4 v4.0.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/seed8d1e2389/resilience => ../..
