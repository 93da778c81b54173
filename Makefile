# The commands of this repository. `make` is what CI runs; `make help` lists the rest.

GO        ?= go
PKGS      ?= ./...
FUZZTIME  ?= 10s
BENCHTIME ?= 1s
# The packages whose benchmarks carry a target; each prints its baseline in the same run.
BENCHPKGS ?= ./arbiter ./internal/engine ./internal/filejournal ./internal/rpc ./internal/provider ./internal/gateway

.DEFAULT_GOAL := all
.PHONY: all check fmt vet lint clients test race fuzz bench sim soak generate generated mutants clean help

all: check test ## Check and test: what CI runs

check: fmt vet lint generated ## gofmt, go vet, golangci-lint, generated code up to date

fmt: ## Fail when a Go file is not formatted
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted, run gofmt -w on:"; echo "$$out"; exit 1; fi

vet: ## go vet over every package
	$(GO) vet $(PKGS)

# The linter is built from the module in tools/, pinned there (tools/lint). Without a network the build cannot
# succeed on a fresh machine: that is said and skipped, because a linter must not stop a person offline.
# Its cache goes stale when a file gains an import ("returned nil but no error"): then once more without it.
lint: ## golangci-lint, built from tools/lint/go.mod (skipped, with a line that says so, when it cannot be built)
	@if (cd tools/lint && $(GO) build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint); then \
		export GOLANGCI_LINT_CACHE=$(CURDIR)/bin/lint-cache; code=0; \
		./bin/golangci-lint run --allow-parallel-runners $(PKGS) >bin/lint.out 2>&1 || code=$$?; \
		if grep -q 'returned nil but no error' bin/lint.out; then \
			rm -rf bin/lint-cache; code=0; ./bin/golangci-lint run --allow-parallel-runners $(PKGS) >bin/lint.out 2>&1 || code=$$?; \
		fi; \
		cat bin/lint.out; exit $$code; \
	else \
		echo "lint: SKIPPED, golangci-lint could not be built from tools/lint/go.mod (see above)"; \
	fi

clients: ## Install the real clients of the gateway's tests into bin/clients (TBA_SKIP_CLIENTS=1: not, and their tests are skipped)
	@GO="$(GO)" ./tests/clients/install.sh

test: clients ## All tests, once
	$(GO) test $(PKGS)

race: clients ## All tests under the race detector
	$(GO) test -race $(PKGS)

fuzz: ## Each fuzz target for FUZZTIME (10s)
	@grep -rn --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file _ name; do \
		name=$${name#func }; echo "== $$name ($$(dirname $$file))"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$(dirname $$file)" </dev/null || exit 1; \
	done

bench: ## The benchmarks that carry a target, each beside its baseline
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(BENCHPKGS)

sim: ## The simulator (not there yet: says so and fails)
	@echo "make sim: the simulator is not part of this release" >&2; exit 2

soak: clients ## All tests with TBA_SOAK=1: the random laws run much longer
	TBA_SOAK=1 $(GO) test -count=1 -timeout 3h $(PKGS)

generate: ## Regenerate the committed generated code with the tools pinned in tools/
	./tools/generate.sh

generated: ## Fail when internal/gen is not what proto/ generates (skipped when the tools cannot be built)
	@if (cd tools/buf && $(GO) build -o ../.bin/ tool) && (cd tools/plugins && $(GO) build -o ../.bin/ tool); then \
		before=$$(mktemp -d) && cp -r internal/gen "$$before" && ./tools/generate.sh && diff -r "$$before/gen" internal/gen \
			|| { echo "internal/gen was not up to date with proto/: run make generate and commit it"; exit 1; }; \
		rm -rf "$$before"; \
	else \
		echo "generated: SKIPPED, the tools could not be built from tools/ (see above)"; \
	fi

mutants: ## Remove one guard at a time (mutants/*.patch): each time the named tests must fail
	./mutants/run.sh

clean: ## Remove built tools
	rm -rf bin tools/.bin

help: ## This list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18
