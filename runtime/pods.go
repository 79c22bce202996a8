// Package runtime runs pods on this node. It observes a pod, package podstate decides what to
// do, and this package does it.
package runtime

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	goruntime "runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/podstate"
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
	Devices *DeviceRegistry
	Node    ocispec.Node
	Host    Host
	// Records keeps what outlives a run.
	Records *record.Store
	// LogDir holds the containers' logs in the kubelet's layout (/var/log/pods).
	LogDir string
	// Pull says when images are pulled, in place of their pull policies.
	Pull image.Mode
	Log  *slog.Logger // may be nil
	// ParallelPulls limits how many images are pulled at once; 0 means 4.
	ParallelPulls int
	// Trace, when set, is called after each step of a pod's start, for a timeline.
	Trace func(uid types.UID, step string, start time.Time, elapsed time.Duration)
	// LogCreated, when set, is called with the log of each instance of a container before it starts.
	LogCreated func(pod *v1.Pod, container, path string)
	// Event, when set, is called with what the kubelet would report as an event of the pod.
	// eventType is v1.EventTypeNormal or v1.EventTypeWarning. It must not block.
	Event func(pod *v1.Pod, eventType, reason, message string)
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
	// AppArmor says whether containers are confined by AppArmor.
	AppArmor bool
	// SELinux says whether the kernel has SELinux. Without it SELinux options have no effect,
	// as under every CRI runtime.
	SELinux bool
	// SeccompDir holds the profiles of type Localhost.
	SeccompDir string
}

// Pods runs pods on this node. It is safe for concurrent use, also by several processes on
// one root: calls that change one pod wait for each other.
type Pods struct {
	o         Options
	logs      logs.Store
	watch     watch
	probes    probes
	pullSlots chan struct{} // holds a value for each image that is being pulled
	// removals bounds how many pods are removed at once. All at once they would slow each other
	// down until calls time out.
	removals chan struct{}

	mu       sync.Mutex // guards the rest
	memories map[types.UID]*memory
	pulls    map[string]*pull // by normalised reference
	supplied []string         // what Supply was called with
}

// New returns Pods on the given parts and starts to listen for the engine's events until
// ctx is done. The parts stay the caller's to close, after ctx is done.
func New(ctx context.Context, o Options) (*Pods, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Trace == nil {
		o.Trace = func(types.UID, string, time.Time, time.Duration) {}
	}
	p := &Pods{
		o: o, logs: logs.Store{Dir: o.LogDir, Root: o.Records.Root()},
		pullSlots: make(chan struct{}, cmp.Or(o.ParallelPulls, defaultPulls)), removals: make(chan struct{}, 8*goruntime.NumCPU()),
		memories: map[types.UID]*memory{}, pulls: map[string]*pull{},
	}
	events, err := o.Engine.Events(ctx)
	if err != nil {
		return nil, err
	}
	go func() {
		for e := range events {
			p.watch.notify(e.PodUID)
		}
	}()
	context.AfterFunc(ctx, p.probes.stopAll)
	return p, nil
}

// Supply says which images, by normalised reference, the user has supplied: they are not pulled,
// whatever the pull policy says.
func (p *Pods) Supply(images []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.supplied = images
}

// traced runs f and reports it to the trace.
func (p *Pods) traced(uid types.UID, name string, f func() error) error {
	begin := time.Now()
	err := f()
	p.o.Trace(uid, name, begin, time.Since(begin))
	return err
}

// Status returns the pod's status, as the kubelet computes it. It changes nothing. A pod that
// is absent is Pending.
func (p *Pods) Status(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return v1.PodStatus{}, err
	}
	return podstate.Status(obs, time.Now()), nil
}

// List returns the pods of earlier runs, and of this one, with their status filled in.
func (p *Pods) List(ctx context.Context) ([]*v1.Pod, error) {
	known, err := p.o.Records.List()
	if err != nil {
		return nil, err
	}
	p.forgetOthers(known)
	pods := make([]*v1.Pod, 0, len(known))
	for _, r := range known {
		if r.Started.IsZero() {
			continue // admitted by a run, or removed
		}
		obs, err := p.observe(ctx, r.Pod)
		if err != nil {
			return nil, err
		}
		pod := *r.Pod
		pod.Status = podstate.Status(obs, time.Now())
		if f, failed := podstate.PodFailure(obs, pod.Status); failed {
			pod.Status.Reason, pod.Status.Message = f.Reason, f.Message
		}
		if added := p.annotations(r.Pod, obs.Sandbox); len(added) > 0 {
			pod.Annotations = maps.Clone(added)
			maps.Copy(pod.Annotations, r.Pod.Annotations)
		}
		pods = append(pods, &pod)
	}
	return pods, nil
}

// Update records another definition of the pod, with the same UID. The next Sync restarts the
// containers whose image has changed. The start time and the devices stay. A pod that was
// never started is left alone.
func (p *Pods) Update(_ context.Context, pod *v1.Pod) error {
	return p.update(pod, func(r *record.Pod) {
		if !r.Started.IsZero() {
			r.Pod = pod.DeepCopy()
			r.Pod.Status = v1.PodStatus{}
		}
	})
}

// Refresh renews what has changed or expires of the files in the volumes of a running pod.
func (p *Pods) Refresh(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	if st, err := p.Status(ctx, pod); err != nil || podspec.Ended(st.Phase) {
		return err
	}
	err = p.o.Volumes.Refresh(ctx, pod)
	if err != nil && ctx.Err() == nil {
		p.event(pod, failure.ReasonFailedMount, "%v", err)
	}
	return err
}

// Annotations returns what a cluster would have added to the pod while it ran: its network
// status, if it has joined several networks. A pod without a sandbox has none, unless this
// process has seen it.
func (p *Pods) Annotations(ctx context.Context, pod *v1.Pod) map[string]string {
	var sandbox *engine.Sandbox
	if s, err := p.o.Sandboxes.Get(ctx, pod); err == nil {
		sandbox = &s
	}
	return p.annotations(pod, sandbox)
}

func (p *Pods) annotations(pod *v1.Pod, sandbox *engine.Sandbox) (all map[string]string) {
	if sandbox != nil {
		return sandbox.Annotations
	}
	p.remember(pod.UID, func(m *memory) { all = m.annotations })
	return all
}

// Digests returns the digests of the images that the pod's containers were made from, by the names
// of the containers.
func (p *Pods) Digests(ctx context.Context, pod *v1.Pod) map[string]string {
	digests := map[string]string{}
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		p.o.Log.Warn("cannot tell the digests of images", "pod", podspec.FullName(pod), "error", err)
	}
	for _, c := range all {
		digests[c.Name] = c.ImageDigest // of the newest instance
	}
	return digests
}

// Changes returns a channel that gets a value when a container of the pod starts, exits
// or runs out of memory. Values coalesce; the channel is closed when ctx is done.
func (p *Pods) Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error) {
	p.remember(pod.UID, func(*memory) {}) // what is pulled for others from now on is for this pod, too
	return p.watch.subscribe(ctx, string(pod.UID)), nil
}
