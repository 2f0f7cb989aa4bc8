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
	$(STATIC) -ldflags "$(LDFLAGS)-next" -o bin/demo-next ./cmd/supervisor
	./demo/run

.PHONY: test
test: deps
	go test -race -timeout 20m ./...

# Lets every system call of the journal and of an upgrade fail, or be the agent's
# last, many times.
.PHONY: fault
fault: deps
	go test -timeout 60m -v -run 'Faults|SIGKILLAtNamedPoints|FloodedThroughCrashes|KilledAt' ./internal/e2e -args -fault
	go test -timeout 60m -count 10 -run 'Kill|Failed|Full|Page|Tampering' ./journal
	go test -timeout 60m -count 10 -run 'SIGKILL|Digest' ./procs

# Every fuzz target that there is, with so many inputs each. Before Go 1.27 a
# duration, such as 30s, may end in "context deadline exceeded" (go.dev/issue/75804).
FUZZTIME ?= 100000x
.PHONY: fuzz
fuzz:
	@targets=$$(grep -ro --include='*_test.go' '^func Fuzz[[:alnum:]]*' .) || exit 1; \
	echo "$$targets" | sed 's|/[^/]*:func | |' | while read -r folder target; do \
		echo "$$folder $$target"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$folder </dev/null || exit 1; \
	done

# What the tests need beside Go: the race detector links with a C compiler, some
# tests play another launcher in Python, let system calls fail with strace, open
# a page in a browser, or press tab in each shell.
TEST_PACKAGES = gcc libc6-dev python3 strace chromium bash-completion zsh fish

.PHONY: deps
deps:
	@for tool in gcc python3 strace chromium zsh fish; do \
		command -v $$tool >/dev/null && continue; \
		apt-get update -q && apt-get install -qy --no-install-recommends $(TEST_PACKAGES) && break; exit 1; \
	done

# The agent as the init of a machine that qemu emulates, with Debian's kernel.
.PHONY: vm
vm: build bin/vm
	go run ./internal/vm -bin bin -kernel bin/vm

bin/vm:
	internal/vm/fetch $@

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

# Where install puts things: below DESTDIR, for a package.
PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
UNITDIR ?= $(PREFIX)/lib/systemd/system

.PHONY: install
install: build
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(UNITDIR) $(DATADIR)/man/man1 $(DATADIR)/man/man8 \
		$(DATADIR)/bash-completion/completions $(DATADIR)/zsh/site-functions $(DATADIR)/fish/vendor_completions.d)
	install bin/supervisor bin/supctl bin/replay $(DESTDIR)$(BINDIR)
	sed 's|@BINDIR@|$(BINDIR)|' packaging/supervisor-agent.service >$(DESTDIR)$(UNITDIR)/supervisor-agent.service
	install -m 644 packaging/supervisor.8 $(DESTDIR)$(DATADIR)/man/man8
	bin/supctl man >$(DESTDIR)$(DATADIR)/man/man1/supctl.1
	bin/replay man >$(DESTDIR)$(DATADIR)/man/man1/replay.1
	bin/supctl completion bash >$(DESTDIR)$(DATADIR)/bash-completion/completions/supctl
	bin/supctl completion zsh >$(DESTDIR)$(DATADIR)/zsh/site-functions/_supctl
	bin/supctl completion fish >$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/supctl.fish

# A Debian package in bin/, for the machine that builds it.
.PHONY: deb
deb: build
	packaging/deb "$(VERSION)" bin

.PHONY: clean
clean:
	rm -rf bin
