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

.PHONY: deps
deps:
	@command -v gcc >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev; }

.PHONY: check
check:
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	go mod tidy -diff

.PHONY: bench
bench: build
	go run ./internal/bench -bin bin

# Upgrades as fast as they go under load, for so long.
SOAK ?= 10m
.PHONY: soak
soak:
	SOAK=$(SOAK) go test -count=1 -timeout 60m -run 'TestSoak$$' -v ./internal/e2e

.PHONY: clean
clean:
	rm -rf bin
