tool = go tool -modfile=tools/go.mod

.PHONY: test lint images bench benchmarks mutants campaign

# Runs all tests against real servers. Arguments of go test: make test ARGS='-run TestConformance'
test:
	scripts/test.sh $(ARGS)

lint:
	test -z "$$($(tool) gofumpt -l . | tee /dev/stderr)"
	for os in linux windows darwin freebsd; do GOOS=$$os go vet ./... || exit 1; done
	$(tool) golangci-lint run
	go fix -diff ./...

# Builds all server images. The tests build the images that they use.
images:
	scripts/images.sh

# Runs the workloads of package bench for each driver, and what only a driver can measure. The
# benchmarks report allocations themselves. For example: make bench ARGS='-bench /W1'
bench:
	go test -run '^$$' -bench . $(ARGS) ./...

# Measures the backends and other libraries against servers in containers, and writes
# docs/benchmarks.md, bench/peers/README.md and their plots:
# make benchmarks ARGS='-duration 10s -peers-duration 0'
# or compares this tree with a commit: make benchmarks ARGS='-compare COMMIT -duration 300ms'
benchmarks: images
	go run ./internal/testenv/benchmarks $(ARGS)

# Removes each guard in turn and prints the tests that detect its absence. Random mutants:
# make mutants ARGS='-random 300 -seed 1 -part root'
mutants:
	go run ./internal/mutants $(ARGS)

# Runs processes under random faults against real servers, judges their history, and writes the
# figures into docs/reliability.md: make campaign ARGS='-duration 10m redis etcd-3'
# ARGS=-help lists servers, faults and kinds of locks.
campaign:
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		go build -o "$$dir" ./internal/testenv/campaign && \
		"$$dir/campaign" -publish $(ARGS)
