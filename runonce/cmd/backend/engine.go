// Package backend is what commands need of containers: an engine, together with the network,
// volumes and cgroups of this machine.
package backend

import (
	"context"
	"errors"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/service"
)

// Options select the engine and its directories, and how its pods are set up. Directories
// are absolute; an empty field has the default of its package.
type Options struct {
	containerd.Options
	// PodsRoot is the root that has the pods' volumes, and after which their cgroups are named.
	// It is not Root if that is a copy.
	PodsRoot   string
	LogDir     string
	ClaimsDir  string // for the data of PersistentVolumeClaims
	Network    network.Options
	ClusterDNS []string
	// ServiceCIDRs are the networks of cluster IPs, at most one of each family; by default a free one of each
	// family that the pods have.
	ServiceCIDRs []netip.Prefix
	CgroupDriver string // cgroupfs or systemd
	PodPidsLimit int64  // processes in a pod, -1 for no limit
	// Healthchecks and MakeRoom are as in runtime.Options; MakeRoom, if set, is also called before an image is imported.
	Healthchecks bool
	MakeRoom     func(ctx context.Context, full bool) (made bool)
	// SeccompDefault gives containers without a seccomp profile the default one.
	SeccompDefault bool
	// LimitedSwap has Burstable pods share the swap of the machine. Otherwise no container can swap, as far as the
	// kernel can say so.
	LimitedSwap bool
}

// Engine is an open container engine.
type Engine interface {
	// Pods returns the runtime for the pods of a node. It completes the options with the engine
	// and the machine. The runtime works until ctx is done.
	Pods(ctx context.Context, node *v1.Node, o runtime.Options) (*runtime.Pods, error)
	// Unsupported returns, by UID, why the machine cannot run some of the pods.
	Unsupported(ctx context.Context, pods []*v1.Pod) map[types.UID]string
	// Chosen returns the OCI runtime of pods without a RuntimeClass. Its path is empty if that is not known.
	Chosen() containerd.Choice
	// Services keeps the Services of the root. It must be called after Pods.
	Services() *service.Keeper
	// Check returns what has to be installed on the machine before the pods can be started, and
	// which files about registries cannot be used. It must be called after Pods.
	Check(pods []*v1.Pod) error
	// Cleanup removes what removed pods have left. It must be called after Pods.
	Cleanup(ctx context.Context) error
	// Import imports an image archive, an OCI layout or a directory of them. A name, if it is not empty, is the
	// normalised reference that the one image of an archive gets. What is bad there is no error.
	Import(ctx context.Context, path, name string) (Imported, error)
	// Images returns the images of the store, by name.
	Images(ctx context.Context) ([]Image, error)
	// ImageSpace returns the space of the file system that has the images.
	ImageSpace(ctx context.Context) (image.Space, error)
	// RemoveImages removes images with their content, except what others or containers use, and
	// returns how many bytes that has freed.
	RemoveImages(ctx context.Context, refs []string) (int64, error)
	// Close releases the engine; containers keep running.
	Close() error
}

// ErrNotRoot is the error of opening an engine without being root.
var ErrNotRoot = errors.New("not root")
