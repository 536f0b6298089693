// newest.mod is go.mod with the newest versions of what it requires, which are tested by
//	go test -modfile=newest.mod ./...
// and updated by
//	go get -modfile=newest.mod github.com/modelcontextprotocol/go-sdk@latest github.com/stretchr/testify@latest
//	go mod tidy -modfile=newest.mod

module github.com/seed8d1e2389/resilience/adapters/gosdk

go 1.25.0

require (
	github.com/modelcontextprotocol/go-sdk v1.8.0
	github.com/seed8d1e2389/resilience v0.1.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/oauth2 v0.35.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/segmentio/asm v1.1.3 // indirect
	github.com/segmentio/encoding v0.5.4 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.20.0 // indirect
	golang.org/x/sys v0.41.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace github.com/seed8d1e2389/resilience => ../..
