// Package backend is what the commands need of a container engine.
package backend

import (
	"context"
	"log/slog"
	"net"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/handler"
	"github.com/runonce/runonce/runtime/record"
)

// Place says which engine is meant and where things live: absolute directories.
type Place struct {
	Address   string // a containerd daemon's socket; empty for the embedded one
	Root      string
	State     string
	LogDir    string
	ClaimsDir string // for the data of claims
	Namespace string
	// Handlers are the runtimes that pods may ask for, beside runc.
	Handlers []handler.Handler
	Log      *slog.Logger
}

// Opener opens the engine of a place. Its errors mean that the engine cannot be used.
type Opener func(ctx context.Context, p Place) (Backend, error)

// Teller tells the versions of what the engine of a place works with, without opening it. Its
// errors mean that the engine cannot be used.
type Teller func(ctx context.Context, p Place) (Versions, error)

// Versions are those of programs outside this one. What is not there is empty.
type Versions struct {
	Daemon      string // containerd's, of a place with an address
	Runtime     string // the OCI runtime's
	RuntimePath string
}

// Backend is an open engine.
type Backend interface {
	// Pods returns the runtime on the engine. It works until ctx is done.
	Pods(ctx context.Context, o PodsOptions) (Pods, error)
	// Import puts the images of archives and OCI layouts into the store and returns
	// their names. path is such an archive, or a directory of them, or a layout.
	Import(ctx context.Context, path string) ([]string, error)
	// Images returns the images that are there, by name.
	Images(ctx context.Context) ([]Image, error)
	// Close lets the engine go; containers run on.
	Close() error
}

// PodsOptions are what the runtime has to know beyond the place.
type PodsOptions struct {
	Objects podspec.Objects
	Node    *v1.Node
	Network Network
	// Devices are those that pods can ask for; nil for none.
	Devices runtime.Devices
	// PodPidsLimit bounds the processes of a pod, -1 for no bound.
	PodPidsLimit int64
	// CgroupDriver makes the cgroups of new pods: cgroupfs or systemd.
	CgroupDriver string
	// LocalImages are names that Import returned: these images are not pulled.
	LocalImages []string
	// Records keeps what is known of the pods of the place.
	Records *record.Store
	// Trace is told of each step of a pod's start.
	Trace func(uid types.UID, step string, start time.Time, elapsed time.Duration)
}

// Network says how pods are connected and what they resolve. What is empty has the
// runtime's own default.
type Network struct {
	ConfDir  string       // of CNI
	BinDirs  []string     // of CNI
	PodCIDRs []*net.IPNet // of the bridge that we bring along
	// ClusterDNS are the addresses of a cluster's DNS, none where there is none, and
	// ClusterDomain its domain.
	ClusterDNS    []string
	ClusterDomain string
}

// Pods is the runtime.
type Pods interface {
	runonce.Runtime
	// Probe asks the running containers once, so that List tells which are ready now.
	Probe(ctx context.Context) error
	// Annotations returns what a cluster would have put on a pod that runs.
	Annotations(ctx context.Context, pod *v1.Pod) map[string]string
	// Unable says what the machine lacks, by the UID of the pod that needs it.
	Unable(ctx context.Context, pods []*v1.Pod) map[types.UID]string
	// Cleanup removes what pods that are gone have left behind.
	Cleanup(ctx context.Context) error
}

// Image is an image in the store.
type Image struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // bytes, packed
}
