# Builds, shows, tests and measures. `make` alone builds.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X main.version=$(VERSION)
STATIC   = CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)"


.PHONY: build
build:
	@mkdir -p bin
	$(STATIC) -o bin/ ./cmd/supervisor ./cmd/supctl ./tools/replay

.PHONY: demo
demo: build
	$(STATIC) -o bin/demo-service ./demo/service
	./demo/run

.PHONY: test
test: deps
	go test -race -timeout 20m ./...

# Lets every system call of the journal fail or be the agent's last, many times.
.PHONY: fault
fault: deps
	go test -timeout 60m -v -run 'Faults|FloodedThroughCrashes' ./internal/e2e -args -fault
	go test -timeout 60m -count 10 -run 'Kill|Failed|Full|Page|Tampering' ./journal
	go test -timeout 60m -count 10 -run 'SIGKILL|Digest' ./procs

# The race detector links with a C compiler; some tests play another launcher
# in Python, or let system calls fail with strace.
.PHONY: deps
deps:
	@command -v gcc >/dev/null && command -v python3 >/dev/null && command -v strace >/dev/null || \
		{ apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev python3 strace; }

.PHONY: check
check:
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	go mod tidy -diff

.PHONY: bench
bench: build
	go run ./internal/bench -bin bin

.PHONY: clean
clean:
	rm -rf bin
