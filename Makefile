tool = go tool -modfile=tools/go.mod

.PHONY: test lint images bench benchmarks mutants campaign

# All tests against real servers. Arguments of go test: make test ARGS='-run TestConformance'
test:
	scripts/test.sh $(ARGS)

lint:
	test -z "$$($(tool) gofumpt -l . | tee /dev/stderr)"
	go vet ./...
	$(tool) golangci-lint run
	go fix -diff ./...

# All server images; the tests build those they use.
images:
	scripts/images.sh

bench:
	go test -run '^$$' -bench . -benchmem $(ARGS) ./...

# Measures the backends, and other libraries beside them, against servers in containers, and writes docs/benchmarks.md and
# its plots: make benchmarks ARGS='-duration 10s -peers-duration 0'
benchmarks: images
	go run ./internal/testenv/benchmarks $(ARGS)

# Removes each guard in turn and shows the conformance case that notices. Random mutants:
# make mutants ARGS='-random 300 -seed 1 -part root'
mutants:
	go run ./internal/mutants $(ARGS)

# Runs processes under random faults against real servers, judges their history, and writes the figures into
# docs/reliability.md: make campaign ARGS='-duration 10m redis etcd-3'; ARGS=-help lists servers and faults.
campaign:
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && go build -o "$$dir" ./internal/testenv/campaign && \
		"$$dir/campaign" -publish $(ARGS)
