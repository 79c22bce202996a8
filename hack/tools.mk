# The programs that the linters, the tests and the release need, each at a version that is only here. They are
# built once, and again when this file has changed.

# Each program is built with the dependencies that its own project has chosen. Go checks all of them against its
# checksum database. Only programs whose go.mod replaces modules, or that are built for other machines, need a
# module here: hack/cluster, hack/runc and hack/cniplugins.
INSTALL_TOOL = CGO_ENABLED=0 GOBIN=$(abspath $(@D)) $(GO) install -trimpath -ldflags '-s -w'

$(TOOLS)/actionlint: hack/tools.mk
	$(INSTALL_TOOL) github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

$(TOOLS)/golangci-lint: hack/tools.mk
	@echo "building golangci-lint (only once, takes about a minute)"
	$(INSTALL_TOOL) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

$(TOOLS)/nfpm: hack/tools.mk
	@echo "building nfpm (only once, takes about a minute)"
	$(INSTALL_TOOL) github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0

CONTAINERD := github.com/containerd/containerd/v2/cmd
CONTAINERD_VERSION := v2.4.2
CONTAINERD_TAGS := no_btrfs,no_devmapper,no_zfs,no_tracing
CONTAINERD_PROGRAMS := $(addsuffix @$(CONTAINERD_VERSION),$(CONTAINERD)/containerd $(CONTAINERD)/containerd-shim-runc-v2)

$(TOOLS)/containerd: hack/tools.mk
	@echo "building containerd for the tests (only once, takes about a minute)"
	$(INSTALL_TOOL) -tags no_cri,$(CONTAINERD_TAGS) $(CONTAINERD_PROGRAMS)

$(TOOLS)/ctr: hack/tools.mk
	$(INSTALL_TOOL) $(CONTAINERD)/ctr@$(CONTAINERD_VERSION)

$(TOOLS)/crictl: hack/tools.mk
	$(INSTALL_TOOL) sigs.k8s.io/cri-tools/cmd/crictl@v1.34.0

$(CLUSTER)/containerd: hack/tools.mk
	@echo "building containerd with CRI for the tests (only once, takes about a minute)"
	$(INSTALL_TOOL) -tags $(CONTAINERD_TAGS) $(CONTAINERD_PROGRAMS)

$(CLUSTER)/kwok: hack/tools.mk
	@echo "building kwok for the tests (only once, takes about a minute)"
	$(INSTALL_TOOL) sigs.k8s.io/kwok/cmd/kwok@v0.8.0

$(CLUSTER)/metrics-server: hack/tools.mk
	@echo "building metrics-server for the tests (only once, takes some minutes)"
	$(INSTALL_TOOL) sigs.k8s.io/metrics-server/cmd/metrics-server@v0.9.0

# Kubernetes, and etcd for it. Clients refuse servers without a version.
KUBERNETES = $(shell $(GO) list -C hack/cluster -m -f '{{.Version}}' k8s.io/kubernetes)
KUBERNETES_MINOR = $(subst ., ,$(KUBERNETES:v%=%))
KUBERNETES_LDFLAGS = -s -w $(addprefix -X k8s.io/component-base/version.,gitVersion=$(KUBERNETES) \
	gitMajor=$(word 1,$(KUBERNETES_MINOR)) gitMinor=$(word 2,$(KUBERNETES_MINOR)))
$(CLUSTER)/kubelet: hack/cluster/go.mod hack/cluster/go.sum
	@echo "building Kubernetes for the tests (only once, takes about five minutes)"
	@mkdir -p $(CLUSTER)
	CGO_ENABLED=0 $(GO) build -C hack/cluster -trimpath -o $(CLUSTER)/ -ldflags '$(KUBERNETES_LDFLAGS)' ./etcd tool
	@touch $@
