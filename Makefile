# `make` lists the targets. `make check` and `make test` are what CI runs.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# Every module of the repository: the root first, then the nested ones.
MODULES := $(sort $(patsubst %/,%,$(dir $(shell \
	find . \( -name '.?*' -o -name testdata -o -name node_modules \) -prune -o -name go.mod -print))))
NESTED  := $(filter-out .,$(MODULES))

# Set by hand: RACE=0 leaves the race run out of `make test`; FUZZTIME is spent
# on each fuzz target; TESTFLAGS goes to every `go test`, CONFORMANCEFLAGS to the
# program of `make conformance`.
RACE      ?= 1
FUZZTIME  ?= 10s
TESTFLAGS ?=
CONFORMANCEFLAGS ?=
TEST       = go test -shuffle=on -timeout 10m $(TESTFLAGS)

# Tools are pinned, built from source, and rebuilt when the Go release changes,
# because a linter built by an older Go refuses newer code.
GOLANGCI_VERSION    := v2.15.0
GOVULNCHECK_VERSION := v1.9.0
TOOLS       := .tools/$(shell go env GOVERSION 2>/dev/null)
GOLANGCI    := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
GOVULNCHECK := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)/govulncheck

.PHONY: help
help: ## Print this list.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# ---- tests -------------------------------------------------------------------

# Go's own summary has to be the last thing printed: nothing may follow it.
.PHONY: test
test: redis ## Run all tests, then once more under the race detector (RACE=0: not).
	@for m in $(NESTED); do (cd "$$m" && $(TEST) ./...); done
	@$(TEST) ./...
	@if [ "$(RACE)" != 0 ]; then $(TEST) -race ./...; fi

.PHONY: race
race: redis ## Run the tests under the race detector only.
	@$(TEST) -race ./...

.PHONY: stress
stress: redis ## Run the tests three times, raced and shuffled.
	@go test -race -shuffle=on -count=3 -timeout 30m $(TESTFLAGS) ./...

.PHONY: fuzz
fuzz: ## Fuzz every fuzz target for FUZZTIME (10s) each.
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

.PHONY: mutants
mutants: ## Break the code in many ways, in a copy, and see that the tests notice.
	@go run ./internal/mutants

.PHONY: conformance
conformance: ## Run the public test suite for HTTP caches (needs Node; CONFORMANCEFLAGS=-cache=redis).
	@scripts/conformance.sh $(CONFORMANCEFLAGS)

.PHONY: redis
redis: ## Install redis-server and redis-sentinel when they are missing.
	@scripts/setup-redis.sh

# ---- benchmarks --------------------------------------------------------------

# Set by hand: BENCHFLAGS goes to the benchmark; `go run -C bench . -h` lists what it takes.
BENCHFLAGS ?=

.PHONY: bench
bench: redis ## Measure all under load beside others, into bench/results (less than half an hour).
	@go run -C bench . -out results $(BENCHFLAGS)

.PHONY: bench-quick
bench-quick: redis ## The same in short, to see that all works (less than 3 minutes).
	@go run -C bench . -quick $(BENCHFLAGS)

.PHONY: bench-publish
bench-publish: ## Put the numbers in bench/results into README.md and docs.
	@go run -C bench . -render results/results.jsonl -publish .. >/dev/null

# ---- checks ------------------------------------------------------------------

.PHONY: check
check: gofmt vet lint vuln mod house ## Run every check that is not a test (-k: do not stop at the first).

.PHONY: gofmt
gofmt: ## Fail and print the difference when a file is not formatted.
	@echo '==> gofmt'
	@d=$$(gofmt -s -d . 2>&1) || true; if [ -n "$$d" ]; then printf '%s\n' "$$d"; exit 1; fi

.PHONY: fmt
fmt: ## Format all Go files.
	@gofmt -s -w .

.PHONY: vet
vet: ## Run go vet in every module.
	@for m in $(MODULES); do echo "==> go vet ($$m)"; (cd "$$m" && go vet ./...); done

.PHONY: lint
lint: $(GOLANGCI) ## Run golangci-lint in every module.
	@for m in $(MODULES); do \
		echo "==> golangci-lint ($$m)"; (cd "$$m" && "$(CURDIR)/$(GOLANGCI)" run -c "$(CURDIR)/.golangci.yml" ./...); \
	done

.PHONY: vuln
vuln: $(GOVULNCHECK) ## Look for known vulnerabilities, where their database can be reached.
	@for m in $(MODULES); do echo "==> govulncheck ($$m)"; scripts/vulncheck.sh "$(CURDIR)/$(GOVULNCHECK)" "$$m"; done

.PHONY: mod
mod: ## Fail when go.mod or go.sum is untidy or a module differs from go.sum.
	@for m in $(MODULES); do echo "==> go mod tidy, verify ($$m)"; (cd "$$m" && go mod tidy -diff && go mod verify); done

.PHONY: house
house: ## Run the tests of the house rules: dependencies, paths, scripts.
	@echo '==> house rules'
	@go test -count=1 ./internal/housetest

# ---- tools -------------------------------------------------------------------

.PHONY: tools
tools: $(GOLANGCI) $(GOVULNCHECK) ## Build the pinned tools (the first time takes minutes).

$(GOLANGCI):
	@echo '==> building golangci-lint $(GOLANGCI_VERSION)'
	@GOBIN="$(CURDIR)/$(@D)" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(GOVULNCHECK):
	@echo '==> building govulncheck $(GOVULNCHECK_VERSION)'
	@GOBIN="$(CURDIR)/$(@D)" go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

.PHONY: clean
clean: ## Remove the built tools and test output.
	@rm -rf .tools
	@find . -name '*.test' -type f -delete
