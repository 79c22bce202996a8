# The whole of the project's house-keeping. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

GO ?= go
export GOFLAGS := -buildvcs=false $(filter-out -buildvcs=%,$(GOFLAGS))
CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/bin

# Everything that goes into the binary comes from the commit, so that the same commit
# gives the same bytes.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE := $(shell TZ=UTC0 git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ HEAD 2>/dev/null || echo unknown)
CMD := github.com/runonce/runonce/runonce/cmd
LDFLAGS := -s -w -buildid= -X $(CMD).version=$(VERSION) -X $(CMD).commit=$(COMMIT) -X $(CMD).date=$(DATE)
STATIC := CGO_ENABLED=0 $(GO) build -trimpath

FUZZTIME ?= 20000x
ROUNDS ?= 5

# Where setup unpacks what the tests need and the machine lacks.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin:$(CACHE)/debian/usr/bin

.PHONY: help build demo test test-unit test-root test-vm lint fmt vet race fuzz bench cover docs verify corpus images tools clean root setup-run setup-test setup-vm payload

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: payload ## bin/runonce: one static binary, the same bytes for the same commit
	@mkdir -p bin
	$(STATIC) -ldflags '$(LDFLAGS)' -o bin/runonce .

# The shim, a small second program that the first embeds.
payload:
	@$(GO) run ./hack/packshim

demo: setup-run build ## run testdata/demo in real containers and check what comes out
	@$(GO) run ./hack/demo

test: root setup-test vet test-unit lint race build verify demo test-root test-vm ## everything: vet, unit, lint, race, verify, demo, all tests as root, and some with other cgroups

test-unit: ## the tests that need neither root nor network
	$(GO) test -short -timeout 20m ./...

test-root: root tools build ## all tests, on real containers too; needs root
	$(GO) test -count=1 -p 1 -timeout 60m ./...

test-vm: root setup-vm payload ## tests in emulated machines: cgroup v2, systemd; SUITES="./runtime/cgroup=. ..." MACHINE=plain,systemd,systemd-v1
	$(GO) run ./hack/vm $(if $(MACHINE),-machine $(MACHINE)) $(SUITES)

lint: $(TOOLS)/golangci-lint ## the linters of .golangci.yml
	$(TOOLS)/golangci-lint run ./... ./testdata/images/...

fmt: $(TOOLS)/golangci-lint ## format the source
	$(TOOLS)/golangci-lint fmt ./...

vet: ## go vet
	$(GO) vet ./... ./testdata/images/...

race: ## the unit tests under the race detector
	CGO_ENABLED=1 $(GO) test -race -short -timeout 20m ./...

fuzz: ## each fuzz target, FUZZTIME=20000x
	@hack/fuzz.sh $(FUZZTIME)

bench: tools build ## start pods beside a bare containerd client, ROUNDS=5
	$(GO) run ./hack/bench -rounds $(ROUNDS) $(BENCHFLAGS)

cover: root tools build ## coverage of all tests by package; needs root
	$(GO) test -count=1 -p 1 -timeout 60m -coverpkg=./... -coverprofile=$(CACHE)/cover.out ./...
	$(GO) tool cover -func=$(CACHE)/cover.out | tail -1

docs: build ## regenerate the documents that are generated
	$(GO) test -count=1 ./manifests/fieldsupport -update
	$(GO) run ./hack/gendocs bin/runonce docs/commands.md

verify: ## fail when something generated is stale, unformatted or untidy
	@hack/verify.sh

tools: setup-test $(TOOLS)/golangci-lint $(TOOLS)/containerd ## what the tests and the linters need

corpus: ## read manifests kept outside the project: CORPUS="DIR..."
	$(GO) run ./hack/corpus $(CORPUS)

images: ## the OCI archives of the tests and the demo, into bin/images
	$(GO) run ./hack/mkimages bin/images

clean: ## remove what make has made, the tools as well
	rm -rf bin .cache runtime/containerd/shimbinary/files/runonce-shim.*

# Without root the tests that start containers would be skipped, and nobody would know.
root:
	@[ "$$(id -u)" = 0 ] || { echo "this starts containers: run it as root" >&2; exit 1; }

setup-run:
	@hack/setup.sh run

setup-test:
	@hack/setup.sh test

setup-vm:
	@hack/setup.sh vm

# Tools have modules of their own, so that their dependencies are not the program's.
$(TOOLS)/golangci-lint: hack/tools/go.mod hack/tools/go.sum
	@echo "building golangci-lint from its module (once, about a minute)"
	@mkdir -p $(TOOLS)
	cd hack/tools && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(TOOLS)/containerd: hack/containerd/go.mod hack/containerd/go.sum
	@echo "building containerd 2.4 for the tests from its module (once, about a minute)"
	@mkdir -p $(TOOLS)
	cd hack/containerd && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -tags no_cri,no_btrfs,no_devmapper,no_zfs,no_tracing \
		-o $(TOOLS)/ github.com/containerd/containerd/v2/cmd/containerd github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
