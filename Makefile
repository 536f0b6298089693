# Every module of the repository, so that none is forgotten.
MODULES := $(patsubst %/go.mod,%,$(shell git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' | sed 's,^go.mod$$,./go.mod,'))
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: test clients lint transparent release-check cover mutate soak fuzz exhaustive demo bars bench agents chaos fleet console-screenshots

comma := ,
test: ## the tests of all modules and of clients/, then a summary; or only some: make test ONLY=adapters/gosdk,clients
	@.ci/test $(subst $(comma), ,$(ONLY))

clients: ## MCP clients that we didn't write, and the conformance suite
	@.ci/test clients

lint: ## gofmt, go vet, staticcheck and go mod tidy, in all modules
	@failed=; out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; failed=" gofmt"; }; \
	for m in $(MODULES); do echo "== linting $$m"; (cd $$m && go mod tidy -diff && \
		{ [ ! -e newest.mod ] || go mod tidy -diff -modfile=newest.mod; } && \
		go vet ./... && go run $(STATICCHECK) ./...) || failed="$$failed $$m"; done; \
	[ -z "$$failed" ] || { echo "lint failed:$$failed"; exit 1; }

transparent: ## the SDKs' own test suites, with and without a guard around every server: half an hour
	@go run -C .ci ./transparent

release-check: ## the next release, as its users will get it
	@.ci/release-check

cover: ## statement coverage of the root package, and what is not covered
	go test -coverprofile=cover.out . && go tool cover -func=cover.out | grep -v '100.0%'

# Gremlins can't choose files, so this excludes the others. It takes the timeout of a mutant from how long the tests take
# without one, so their result must not come from the cache.
GREMLINS := github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
mutate: ## changes one file of the root package in many places, and lists the changes that no test notices: make mutate FILE=limits.go
	@[ -e '$(FILE)' ] || { echo "make mutate needs the name of a file in the root, such as FILE=limits.go"; exit 1; }
	GOFLAGS=-count=1 go run $(GREMLINS) unleash --workers 2 --timeout-coefficient 4 --output-statuses lct \
		--exclude-files / $(patsubst %,--exclude-files '^%$$',$(filter-out $(FILE) %_test.go,$(wildcard *.go))) .

SOAK ?= 60s
SEED ?= 0
soak: ## a load test of a guard, under the race detector; SEED repeats one
	go test -race -count=1 -v -run '^TestSoak$$' . -soak $(SOAK) -soak.seed $(SEED)

FUZZTIME ?= 30s
fuzz: ## the fuzz tests of the root package and of adapters/console
	go test -run '^$$' -fuzz FuzzRedact -fuzztime $(FUZZTIME) .
	go test -run '^$$' -fuzz FuzzScrub -fuzztime $(FUZZTIME) .
	cd adapters/console && go test -run '^$$' -fuzz FuzzNames -fuzztime $(FUZZTIME) .

exhaustive: ## the breaker in each way in which it can be used, up to five operations deep: about a minute
	go test -C property/exhaustive -count=1 -v . -depth 5

demo: ## a hanging, dying and returning backend, as an agent sees it
	go run -C examples ./demo

BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
bars: ## the guard beside its peers and the floor, as ratios that it is held to: half a minute
	cd benchmarks && go run ./bars

bench: bars ## the guard beside its peers, six runs each: about ten minutes on a machine that does nothing else
	cd benchmarks && go test -c -o bench.test . && for i in 1 2 3 4 5 6; do ./bench.test -test.run '^$$' -test.bench . -test.benchtime 0.3s || exit 1; done > bench.out
	cd benchmarks && go run $(BENCHSTAT) -col /peer bench.out

AGENTSEEDS ?= 200
agents: ## agents that work with guarded and other servers: draws docs/agents.svg and rewrites two tables, about ten minutes
	go test -C benchmarks/agents -count=1 -timeout 2h -run '^TestReport$$' -seeds $(AGENTSEEDS) -update -v .

chaos: ## draws docs/chaos.svg: servers without a guard, with one, and with a Probe, in the same outage
	cd examples && go test -count=1 ./chaos -run '^TestPicture$$' -update -v

console-screenshots: ## takes docs/console-*.png again, in Chromium
	cd examples && go test -count=1 ./console -run '^TestScreenshots$$' -update

fleet: ## a table of servers with and without a fleet in an outage, with a real Redis: a minute
	cd adapters/redis && go test -count=1 -v -run '^TestTable$$' . -table

.PHONY: cross test-lowest

PUBLISHED := $(patsubst %/,%,$(dir $(wildcard go.mod adapters/*/go.mod)))

cross: ## compiles the published modules and their tests for other systems
	@set -e; for m in $(PUBLISHED); do for p in windows/amd64 darwin/arm64 js/wasm; do echo "== compiling $$m for $$p"; \
		(cd $$m && GOOS=$${p%/*} GOARCH=$${p#*/} go vet ./...); done; done

# Go 1.25.2 takes the place of 1.25.0 and 1.25.1, whose testing/synctest allocates without a lock, so that tests may hang:
# https://go.dev/issue/75134. The long simulations, which -short leaves out, don't depend on versions.
test-lowest: ## the published modules with the lowest versions that they require, also of Go, and without the race detector
	@set -e; for m in $(PUBLISHED); do (cd $$m && v=$$(go list -m -f '{{.GoVersion}}'); case $$v in 1.25.[01]) v=1.25.2;; esac; \
		echo "== testing $$m with Go $$v and the lowest dependencies that its go.mod requires"; \
		GOTOOLCHAIN=go$$v go test -short -count=1 ./...); done
