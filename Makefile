# Builds, tests and checks the project. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

GO ?= go
export GOFLAGS := -buildvcs=false $(filter-out -buildvcs=%,$(GOFLAGS))
CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/bin
CLUSTER := $(CACHE)/cluster

# How the programs of TOOLS and CLUSTER are built.
include hack/tools.mk

# Version information comes from the commit, so that builds are reproducible.
VERSION := $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null || echo unknown)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
EPOCH := $(or $(shell git show -s --format=%ct HEAD 2>/dev/null),0)
DATE := $(shell TZ=UTC0 git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ HEAD 2>/dev/null || echo unknown)
CMD := github.com/runonce/runonce/runonce/cmd
LDFLAGS := -s -w -buildid= -X $(CMD).version=$(VERSION) -X $(CMD).commit=$(COMMIT) -X $(CMD).date=$(DATE)
# Without gRPC's debugging pages: their templates would keep every method of the program, 7 MB.
TAGS := grpcnotrace
STATIC := CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS)

# The node of a cluster and the converter of compose files are modules of their own, which ./... leaves out.
NODE := runtime/provider
COMPOSE := manifests/compose

ARCHS := amd64,arm64
FUZZTIME ?= 20000x

# hack/setup.sh unpacks programs for the tests below CACHE.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin:$(CACHE)/debian/usr/bin

.PHONY: help build build-node build-compose demo install release test test-release test-unit test-fast test-embedded test-root test-vm test-vm-quick test-arm64 test-cloud-init test-cluster test-cluster-quick cluster cluster-tools lint fmt race fuzz fuzz-quick bench bench-images bench-exec bench-watch bench-quick chaos cover docs verify corpus images tools clean root setup-run setup-test setup-vm setup-arm64 setup-debian setup-release payload

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: payload ## build bin/runonce, one static binary, and its manual page; reproducible
	@mkdir -p bin
	$(STATIC) -ldflags '$(LDFLAGS)' -o bin/runonce .
	@$(GO) run ./hack/gendocs bin/runonce bin/runonce.1

build-node: payload ## build bin/runonce-node, which makes this machine a node of a Kubernetes cluster
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -C $(NODE) -trimpath -ldflags '-s -w' -o $(CURDIR)/bin/runonce-node ./cmd/runonce-node

build-compose: ## build bin/runonce-compose, which converts files of docker compose, and which "runonce convert" runs
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -C $(COMPOSE) -trimpath -ldflags '-s -w' -o $(CURDIR)/bin/runonce-compose ./cmd/runonce-compose

# The shim, a small second program that the first embeds.
payload:
	@$(GO) run ./hack/packshim

# Where "make install" puts things. DESTDIR is for packages.
PREFIX ?= /usr/local
DESTDIR ?=
PROGRAM ?= bin/runonce
MANUAL ?= bin/runonce.1
UNITS = $(filter %.service %.timer %.path %.socket %.target,$(wildcard packaging/systemd/* packaging/gce/*))

install: ## install what "make build" has built, completions and systemd units; PREFIX=/usr/local DESTDIR=
	@[ -e $(PROGRAM) -a -e $(MANUAL) ] || $(MAKE) build
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/runonce
	install -D -m 644 $(MANUAL) $(DESTDIR)$(PREFIX)/share/man/man1/runonce.1
	install -D -m 644 runonce/cmd/completion.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/runonce
	install -D -m 644 runonce/cmd/completion.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_runonce
	install -D -m 644 runonce/cmd/completion.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/runonce.fish
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in $(UNITS); do \
		sed 's|/usr/local/|$(PREFIX)/|g' $$unit >$(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}; \
		chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}; \
	done
	install -D -m 755 packaging/gce/gce-token $(DESTDIR)$(PREFIX)/libexec/runonce/gce/gce-token
	install -D -m 644 packaging/gce/providers.yaml $(DESTDIR)$(PREFIX)/libexec/runonce/gce/providers.yaml

release: setup-release payload $(TOOLS)/nfpm ## build archives and packages in dist/, reproducible; ARCH=amd64,arm64
	$(GO) run ./hack/release -o dist -arch $(or $(ARCH),$(ARCHS)) -version '$(VERSION)' -epoch $(EPOCH) \
		-ldflags '$(LDFLAGS)' -tags $(TAGS) -nfpm $(TOOLS)/nfpm -sysroot $(CACHE)/release

# The crun of a release, where bin/runonce looks for it.
libexec/runonce/crun:
	@ARCH=$$($(GO) env GOARCH) hack/setup.sh release
	$(GO) run ./hack/release -crun $@ -sysroot $(CACHE)/release

test-release: ## build the amd64 release twice, in different directories, and compare the files
	@hack/release/twice.sh

demo: setup-run build ## run testdata/demo in real containers and check the output
	@$(GO) run ./hack/demo

# race and test-root run what test-unit does. Kubernetes, which takes many minutes to build, is built while the tests
# wait.
test: root setup-test lint race build verify fuzz-quick demo ## run all checks and tests; needs root
	@nice -n 19 $(MAKE) cluster-tools & built=$$!; $(MAKE) test-root || { kill $$built; exit 1; }; \
		wait $$built && $(MAKE) test-cluster-quick test-vm-quick bench-quick

test-unit: ## run the tests that need neither root nor network, and say how many were skipped and why
	@($(GO) test -json -short -timeout 20m ./... $(OR_FAIL); for module in $(NODE) $(COMPOSE); do \
		$(GO) test -C $$module -json -short -timeout 20m ./... $(OR_FAIL); done) | $(GO) run ./hack/testsummary

# A pipe has the exit code of its last command.
OR_FAIL = || echo '{"Action":"fail"}'

# What takes long is left out: containerd in this process, the shim with real processes, and all of the command line but
# the stories.
test-fast: ## run the stories and the tests of all decisions, in less than a minute
	@$(GO) test -short $$($(GO) list ./... | grep -vE '/(hack|internal/testing)(/|$$)|/runtime/(containerd/server|shim/task|logs|probe)$$|/runonce/cmd$$')
	@$(GO) test -short -run '^TestStories$$' ./runonce/cmd

test-embedded: root setup-run payload ## run the unit tests, and those of the embedded engine, in about three minutes; needs root
	$(GO) test -short -timeout 20m ./...
	$(GO) test -count=1 -p 1 -timeout 20m -run '^(TestEmbeddedConforms|TestStoriesOnEmbedded)$$' ./runtime/containerd ./runonce/cmd

# Two packages at a time, those that take longest first, and beside them the stories on other engines: their tests mostly
# wait, and those on the embedded engine have a process for themselves.
BESIDE = ^TestStoriesOn(Daemons|Crun)$$
test-root: root tools build ## run all tests, including those with real containers; needs root
	@($(GO) test -json -count=1 -timeout 60m -run '$(BESIDE)' ./runonce/cmd >.cache/beside.json & beside=$$!; \
		$(GO) test -json -count=1 -p 2 -timeout 60m -skip '$(BESIDE)' ./runonce/cmd ./hack/e2e ./... $(OR_FAIL); \
		wait $$beside $(OR_FAIL); cat .cache/beside.json) | $(GO) run ./hack/testsummary

test-vm: VMFLAGS = -all
test-vm: test-vm-quick test-cloud-init ## run tests in all emulated machines

# The machine with Debian takes too long for every change. Of the others, two run at a time, since each uses little more
# than a processor; what the one beside has written comes last.
test-vm-quick: root setup-vm payload ## run tests in emulated machines; SUITES="./runtime/cgroup=. ..." MACHINE=plain,systemd,systemd-v1
ifeq ($(MACHINE)$(SUITES),)
	@$(GO) run ./hack/vm $(VMFLAGS) -machine systemd,systemd-v1 >$(CACHE)/booted.log 2>&1 & booted=$$!; \
		$(GO) run ./hack/vm $(VMFLAGS) -machine plain; plain=$$?; \
		wait $$booted; code=$$?; cat $(CACHE)/booted.log; exit $$((code | plain))
else
	$(GO) run ./hack/vm $(VMFLAGS) $(if $(MACHINE),-machine $(MACHINE)) $(SUITES)
endif

test-arm64: ARCHS = arm64
test-arm64: root setup-arm64 payload $(if $(SUITES),,release) ## run the tests of the machine "plain" on emulated arm64, and the release for it; SUITES="./runtime/cgroup=. ..."
	$(GO) run ./hack/vm -machine arm64 $(SUITES)

test-cloud-init: ARCHS = amd64
test-cloud-init: root setup-debian release ## boot a Debian machine with the example of cloud-init and the released packages
	$(GO) run ./hack/vm -machine debian -timeout 25m -memory 2048

test-cluster: test-cluster-quick ## run tests on a Kubernetes cluster of this machine; RUN=REGEX
test-cluster: $(CLUSTER)/metrics-server
test-cluster: QUICK =

# Those that take long are left out.
QUICK = Test(Cluster|Kubectl|ConsoleBlocks)/(Stories|Webhook|serve|TwoRuns|Overtaken|Images|SlowPull|Restart|deployment|streams|suite)/(cluster-|happy|exec|attach|debug|interactive|port-forward|^Test)
test-cluster-quick: root setup-test cluster-tools payload
	@(RUNONCE_TEST_CLUSTER=1 $(GO) test -json -count=1 -p 1 -timeout 40m -run '$(or $(RUN),$(QUICK),Cluster|Kubectl)' ./runtime/cluster ./runonce/cmd ./hack/e2e $(OR_FAIL); \
	RUNONCE_TEST_CLUSTER=1 $(GO) test -C $(NODE) -json -count=1 -timeout 20m -run '$(or $(RUN),$(QUICK),Cluster)' ./cmd/runonce-node $(OR_FAIL)) | $(GO) run ./hack/testsummary

cluster: root setup-test cluster-tools ## run a Kubernetes cluster on this machine and print its kubeconfig; SIMULATED=N nodes more; SERVICES=1
	$(GO) run ./hack/runcluster $(if $(SIMULATED),-simulated $(SIMULATED)) $(if $(SERVICES),-services)

chaos: root tools build ## kill processes at random moments and check every result; ROUNDS=500 ENGINE=embedded|2.4|1.6 OCI_RUNTIME=runc|crun KINDS=signals,... PARALLEL=4
	$(GO) run ./hack/chaos -rounds $(or $(ROUNDS),500) -parallel $(or $(PARALLEL),4) \
		$(if $(ENGINE),-engine $(ENGINE)) $(if $(OCI_RUNTIME),-oci-runtime $(OCI_RUNTIME)) $(if $(KINDS),-kinds $(KINDS)) $(if $(SEED),-seed $(SEED))

lint: $(TOOLS)/golangci-lint $(TOOLS)/actionlint ## run golangci-lint, which includes go vet, and actionlint on the example of GitHub Actions
	$(TOOLS)/golangci-lint run ./... ./testdata/images/...
	cd $(NODE) && $(TOOLS)/golangci-lint run ./...
	cd $(COMPOSE) && $(TOOLS)/golangci-lint run ./...
	$(TOOLS)/actionlint examples/ci/github.yaml examples/ci/github-action.yaml

fmt: $(TOOLS)/golangci-lint ## format the source
	$(TOOLS)/golangci-lint fmt ./...
	cd $(NODE) && $(TOOLS)/golangci-lint fmt ./...
	cd $(COMPOSE) && $(TOOLS)/golangci-lint fmt ./...

race: ## run the unit tests with the race detector
	CGO_ENABLED=1 $(GO) test -race -short -timeout 20m ./...
	CGO_ENABLED=1 $(GO) test -C $(NODE) -race -short -timeout 20m ./...
	CGO_ENABLED=1 $(GO) test -C $(COMPOSE) -race -short -timeout 20m ./...

fuzz: ## run each fuzz target; FUZZTIME=20000x
	@hack/fuzz.sh $(FUZZTIME)

fuzz-quick: FUZZTIME = 500x
fuzz-quick: fuzz ## run each fuzz target for a moment, in about a minute

bench: root tools build libexec/runonce/crun ## compare pod start-up with a plain containerd client; ROUNDS=5 PODMAN=1 CRICTL=1 RECORD=1 BENCHFLAGS=-help
	@hack/setup.sh bench
	@[ -z "$(CRICTL)" ] || $(MAKE) $(TOOLS)/crictl $(CLUSTER)/containerd
	@[ -z "$(PODMAN)" ] || hack/setup.sh podman
	@PATH="$$PATH:$(CACHE)/podman/usr/bin" $(GO) run ./hack/bench -rounds $(or $(ROUNDS),5) $(if $(RECORD),-o docs/benchmarks.json) $(BENCHFLAGS)

bench-images: root tools build $(TOOLS)/ctr ## compare imports and pulls of a large image with ctr, skopeo and podman; ROUNDS=3 PODMAN=1
	@hack/setup.sh bench
	@[ -z "$(PODMAN)" ] || hack/setup.sh podman
	@PATH="$$PATH:$(CACHE)/podman/usr/bin" $(GO) run ./hack/imagebench -rounds $(or $(ROUNDS),3)

bench-exec: root cluster-tools $(TOOLS)/crictl build ## compare exec with ctr, crictl, kubectl and podman; ROUNDS=30 PODMAN=1
	@[ -z "$(PODMAN)" ] || hack/setup.sh podman
	@RUNONCE_TEST_ROOT=1 RUNONCE_TEST_CLUSTER=1 PATH="$$PATH:$(abspath $(TOOLS)):$(CACHE)/podman/usr/bin" \
		$(GO) test -run '^$$' -bench Exec -benchtime $(or $(ROUNDS),30)x ./hack/e2e

bench-watch: root cluster-tools build ## compare the cost of idle pods with a kubelet's, and measure a run that waits; PODS=100
	@RUNONCE_TEST_ROOT=1 RUNONCE_TEST_CLUSTER=1 RUNONCE_BENCH_PODS=$(or $(PODS),100) $(GO) test -run '^$$' -bench 'Watch|Wait' -benchtime 1x -timeout 60m ./hack/e2e

bench-quick: root tools build libexec/runonce/crun ## print the ratios to a plain containerd client, in about a minute
	@$(GO) run ./hack/bench -quick

cover: root tools build ## print the coverage of all tests; needs root
	$(GO) test -count=1 -p 1 -timeout 60m -coverpkg=./... -coverprofile=$(CACHE)/cover.out ./...
	$(GO) tool cover -func=$(CACHE)/cover.out | tail -1

docs: build ## write the generated documents, also those that the program embeds
	$(GO) test -count=1 ./manifests -run TestDocument -update
	$(GO) test -count=1 ./runonce/cmd -run '^TestSchemas$$' -update
	$(GO) run ./hack/gendocs bin/runonce docs/commands.md
	$(GO) run ./hack/gendocs docs/demo.md docs/demo.svg
	$(GO) run ./hack/bench -render docs/benchmarks.json
	$(GO) run ./hack/genopenapi runtime/serve/apiserver/openapi/documents.zst

verify: ## check generated documents, go.mod and links
	@hack/verify.sh

tools: setup-test $(TOOLS)/golangci-lint $(TOOLS)/actionlint $(TOOLS)/containerd ## install what the tests and the linters need

corpus: ## read manifests from outside the repository; CORPUS="DIR..."
	$(GO) run ./hack/corpus $(CORPUS)

images: setup-test ## write the images of the tests, the demo and the examples to bin/images
	$(GO) run ./hack/mkimages bin/images
	$(GO) run ./hack/mkimages bin/images postgres

clean: ## remove everything that make has built, including the tools
	rm -rf bin dist libexec .cache runtime/containerd/shim/runonce-shim.*

# Without root, the tests that start containers would be silently skipped.
root:
	@[ "$$(id -u)" = 0 ] || { echo "this starts containers and needs root" >&2; exit 1; }

setup-run:
	@hack/setup.sh run

setup-test:
	@hack/setup.sh test

setup-vm:
	@hack/setup.sh vm

setup-arm64:
	@hack/setup.sh arm64

setup-debian:
	@hack/setup.sh debian

setup-release:
	@ARCH=$(or $(ARCH),$(ARCHS)) hack/setup.sh release

# A cluster: etcd, the control plane, kube-proxy, a kubelet, and a containerd for it.
cluster-tools: $(CLUSTER)/kubelet $(CLUSTER)/containerd $(CLUSTER)/kwok ## build what a Kubernetes cluster needs
