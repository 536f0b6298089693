module github.com/seed8d1e2389/resilience/adapters/mcpgo

go 1.25.0

require (
	github.com/mark3labs/mcp-go v0.47.0
	github.com/seed8d1e2389/resilience v0.1.0
	github.com/stretchr/testify v1.9.0
)

require (
	github.com/cenkalti/backoff/v4 v4.0.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/google/jsonschema-go v0.4.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/spf13/cast v1.7.1 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/seed8d1e2389/resilience => ../..
