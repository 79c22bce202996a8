package runtime

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/volume"
)

// Options are what Pods works with. All must be set but those that say otherwise.
type Options struct {
	Engine    engine.Engine
	Sandboxes Sandboxes
	Volumes   *volume.Manager
	Cgroups   Cgroups
	Objects   podspec.Objects
	// Devices are those that containers have to ask for; may be nil.
	Devices *host.Devices
	// Services are those of this machine; may be nil.
	Services Services
	Node     ocispec.Node
	Host     Host
	// Runtime is the OCI runtime of pods without a RuntimeClass that are started from now on.
	Runtime string
	// Records keeps what outlives a run.
	Records *record.Store
	// LogDir holds the containers' logs in the kubelet's layout (/var/log/pods).
	LogDir string
	// Pull says when images are pulled, in place of their pull policies.
	Pull image.Mode
	// Healthchecks says that the health check of an image is the readiness probe of a container that has none.
	Healthchecks bool

	Log *slog.Logger // may be nil
	// MakeRoom, when set, is called before an image is pulled, and with full when that has failed because the disk is
	// full: it says whether it has removed anything, so that it may help to try again.
	MakeRoom func(ctx context.Context, full bool) (made bool)
	// ParallelPulls limits how many images are pulled at once; 0 means 4.
	ParallelPulls int
	// Trace, when set, is called after each step of a pod's start, for a timeline.
	Trace func(uid types.UID, step string, start time.Time, elapsed time.Duration)
	// LogCreated, when set, is called with the log of each instance of a container before it starts.
	LogCreated func(pod *v1.Pod, container, path string)
	// Created, when set, is called when an instance of a container exists and is about to start, and may be called
	// again for it. What it has returned last is called once the instance has started.
	Created func(pod *v1.Pod, container, id string) (started func())
	// Event, when set, is called with each event of a pod when it happens. It must not block.
	Event func(pod *v1.Pod, e podevent.Event)
}

// Host is what the specs of containers need to know of this machine.
type Host struct {
	ocispec.Host
	// ResolvConf and HostsFile are paths of the host's files.
	ResolvConf string
	HostsFile  string
	// ClusterDNS are the addresses of a cluster's DNS servers, if there are any.
	ClusterDNS    []string
	ClusterDomain string
	// SeccompDir holds the profiles of type Localhost.
	SeccompDir string
}

// Sandboxes makes and removes the namespaces and the network that a pod's containers share.
type Sandboxes interface {
	// Ensure returns the pod's sandbox and makes it first if it does not exist. After an error
	// nothing of it is left: no namespace, address or port rule. The caller holds the lock.
	Ensure(ctx context.Context, pod *v1.Pod, lock record.Lock) (engine.Sandbox, error)
	// Get returns the pod's sandbox, or an error that wraps fs.ErrNotExist when it has
	// none or its namespaces are gone.
	Get(ctx context.Context, pod *v1.Pod) (engine.Sandbox, error)
	// Remove releases the pod's addresses and rules and removes its namespaces. A pod
	// without a sandbox is no error.
	Remove(ctx context.Context, pod *v1.Pod, lock record.Lock) error
}

// Services has pods reach each other by name, and has connections to Services go to the pods that are ready. What
// they say follows from the records of the pods.
type Services interface {
	// Environment returns the variables about Services for the containers of the pod.
	Environment(pod *v1.Pod) ([]v1.EnvVar, error)
	// WithNames returns the hosts file of the pod with the names of Services and pods.
	WithNames(pod *v1.Pod, file []byte) ([]byte, error)
	// Update brings names and connections up to date with the record of the pod, or with its absence. Connections are so
	// when it returns.
	Update(ctx context.Context, pod *v1.Pod) error
	// Keep restores what other programs may have deleted, from time to time.
	Keep(ctx context.Context) error
}

// Cgroups makes and removes the cgroup of a pod, the parent of its containers' cgroups.
type Cgroups interface {
	// Ensure makes the pod's cgroup with its limits and returns the parent for the cgroups of
	// its containers: a path below the cgroup root, or the name of a slice.
	Ensure(ctx context.Context, pod *v1.Pod) (string, error)
	// Stopping lets the processes of the pod exit without delay until done is called, however little of the CPU it has.
	Stopping(ctx context.Context, pod *v1.Pod) (done func())
	// Kill kills what runs in the cgroup of a container of the pod, or of all without an ID.
	Kill(ctx context.Context, pod *v1.Pod, id string) error
	// Remove removes the pod's cgroup, and kills what runs there. An absent one is no error.
	Remove(ctx context.Context, pod *v1.Pod) error
	// Usage returns what the pod has used, and its containers by their IDs, of which those that have no cgroup are
	// left out. Without a cgroup of the pod the error wraps fs.ErrNotExist.
	Usage(pod *v1.Pod, ids []string) (of podusage.Sample, containers map[string]podusage.Sample, err error)
	// Totals returns what containers of the pod have used since their starts, by their IDs. Those that have no cgroup are
	// left out.
	Totals(pod *v1.Pod, ids []string) map[string]podusage.Total
}

// traced runs f and reports it to the trace.
func (o *Options) traced(uid types.UID, name string, f func() error) error {
	begin := time.Now()
	err := f()
	o.Trace(uid, name, begin, time.Since(begin))
	return err
}
