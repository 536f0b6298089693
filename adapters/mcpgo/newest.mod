// newest.mod is go.mod with the newest versions of what it requires, which are tested by
//	go test -modfile=newest.mod ./...
// and updated by
//	go get -modfile=newest.mod github.com/mark3labs/mcp-go@latest github.com/stretchr/testify@latest
//	go mod tidy -modfile=newest.mod

module github.com/seed8d1e2389/resilience/adapters/mcpgo

go 1.25.5

require (
	github.com/mark3labs/mcp-go v1.2.1
	github.com/seed8d1e2389/resilience v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/google/jsonschema-go v0.4.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.2 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/spf13/cast v1.7.1 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.14.0 // indirect
)

replace github.com/seed8d1e2389/resilience => ../..
