// newest.mod is go.mod with the newest versions of what it requires, which are tested by
//	go test -modfile=newest.mod ./...
// and updated by
//	go get -modfile=newest.mod github.com/cenkalti/backoff/v4@latest github.com/stretchr/testify@latest
//	go mod tidy -modfile=newest.mod

module github.com/seed8d1e2389/resilience

go 1.25.0

require (
	github.com/cenkalti/backoff/v4 v4.3.0
	github.com/sony/gobreaker/v2 v2.4.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
