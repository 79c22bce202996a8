// Package runtime turns one pod into containers on this node: the sync decision, a pure
// function over a snapshot of the pod, the steps that carry it out, and the pod's status.
package runtime

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/spec"
)

// Options are the parts that Pods works with. All but Log and Trace must be set.
type Options struct {
	Engine    engine.Engine
	Images    engine.Images
	Sandboxes Sandboxes
	Volumes   Volumes
	Layers    Layers
	Cgroups   Cgroups
	Objects   podspec.Objects
	// Devices may be nil.
	Devices Devices
	Node    spec.Node
	Host    Host
	// Root is the directory that keeps what outlives a run: Root/pods/UID.
	Root string
	// LogDir holds the containers' logs in the kubelet's layout (/var/log/pods).
	LogDir string
	// LocalImages are the references, in full form, of images that the user gave along:
	// they are not pulled, whatever the pull policy says.
	LocalImages []string
	// RecursiveReadOnly says whether mounts can be read-only with all below them; nil is
	// no. It is asked only when a volumeMount needs to know.
	RecursiveReadOnly func(pod *v1.Pod) bool
	// Claim takes the pod for this process alone until release, for what Status may have to
	// do to it; ok is false while another process, or another call of this one, works on the
	// pod. Sync, Fail and Stop are the caller's to guard. Nil says that there is no other.
	Claim func(pod *v1.Pod) (release func(), ok bool, err error)
	Log   *slog.Logger
	// Trace, when set, is told of each step of a pod's start, for a timeline.
	Trace func(uid types.UID, step string, start time.Time, elapsed time.Duration)
}

// Host is what the specs of containers need to know of this machine.
type Host struct {
	host.Host
	CgroupV2 bool
	// CgroupOptions are those of the host's cgroup mount that a mount of it must keep.
	CgroupOptions []string
	// ResolvConf and HostsFile are paths of the host's files.
	ResolvConf string
	HostsFile  string
	// ClusterDNS are the addresses of a cluster's DNS, none where there is none, and
	// ClusterDomain its domain.
	ClusterDNS    []string
	ClusterDomain string
	// AppArmor says that containers are to be confined by AppArmor.
	AppArmor bool
	// SELinux says that the kernel enforces SELinux, or would. Without it options for it
	// have no effect, as under every CRI runtime.
	SELinux bool
	// SeccompDir holds the profiles of type Localhost.
	SeccompDir string
}

// Pods runs pods on this node. It is safe for concurrent use; calls for one pod wait for
// each other.
type Pods struct {
	o      Options
	store  store
	pulls  pulls
	watch  watch
	probes probes

	mu    sync.Mutex
	state map[types.UID]*podState
}

// podState is what this process remembers of a pod between two calls.
type podState struct {
	mu       sync.Mutex // held by Sync and Stop: one at a time for each pod
	prepared bool       // volumes, cgroup and files are there
	synced   bool       // this process works on the pod
	extras   bool       // images were asked for that no container mounts
	measure  time.Time  // when its storage may be measured again

	// memo guards what Status reads while a Sync works.
	memo    sync.Mutex
	waiting map[string]waiting
	crashes map[string]crash
	kept    v1.PodStatus      // of the pod's record
	file    fs.FileInfo       // of the record that kept is of
	reset   *reset            // nil before it was read
	starts  failedStarts      // nil before they were read
	killed  map[string]string // by container ID: what a probe said that had it killed
	timed   bool              // the deadline will wake the waiters
	// annotations outlive the sandbox that they tell of.
	annotations map[string]string
}

// waiting is why a container does not run.
type waiting struct {
	reason  string
	message string
}

// crash counts how often a container ended soon after its start.
type crash struct {
	count  int
	lastID string
}

// New returns Pods on the given parts and starts to listen for the engine's events until
// ctx is done. The parts stay the caller's to close, after ctx is done.
func New(ctx context.Context, o Options) (*Pods, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Trace == nil {
		o.Trace = func(types.UID, string, time.Time, time.Duration) {}
	}
	p := &Pods{
		o:     o,
		store: store{dir: filepath.Join(o.Root, "pods")},
		state: map[types.UID]*podState{},
	}
	p.pulls.images = o.Images
	p.pulls.local = make(map[string]bool, len(o.LocalImages))
	for _, ref := range o.LocalImages {
		p.pulls.local[ref] = true
	}
	events, err := o.Engine.Events(ctx)
	if err != nil {
		return nil, err
	}
	go p.watch.pump(events)
	context.AfterFunc(ctx, p.probes.stop)
	return p, nil
}

// of returns what is remembered of the pod.
func (p *Pods) of(uid types.UID) *podState {
	p.mu.Lock()
	defer p.mu.Unlock()
	st, ok := p.state[uid]
	if !ok {
		st = &podState{waiting: map[string]waiting{}, crashes: map[string]crash{}}
		p.state[uid] = st
	}
	return st
}

// step runs f and reports it to the trace.
func (p *Pods) step(uid types.UID, name string, f func() error) error {
	begin := time.Now()
	err := f()
	p.o.Trace(uid, name, begin, time.Since(begin))
	return err
}

// List returns the pods of earlier runs, and of this one, with their status filled in.
func (p *Pods) List(ctx context.Context) ([]*v1.Pod, error) {
	pods, err := p.store.list()
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		if pod.Status, err = p.Status(ctx, pod); err != nil {
			return nil, err
		}
		p.store.groundless(pod)
		if noted := p.Annotations(ctx, pod); len(noted) > 0 {
			own := pod.Annotations
			pod.Annotations = maps.Clone(noted)
			maps.Copy(pod.Annotations, own)
		}
	}
	return pods, nil
}

// Annotations returns what a cluster would have put on the pod while it ran: its network
// status, where it has joined several networks. A pod without a sandbox has none,
// unless this process has seen it.
func (p *Pods) Annotations(ctx context.Context, pod *v1.Pod) map[string]string {
	if box, err := p.o.Sandboxes.Get(ctx, pod); err == nil {
		return box.Annotations()
	}
	st := p.of(pod.UID)
	st.memo.Lock()
	defer st.memo.Unlock()
	return st.annotations
}

// Changes returns a channel that gets a value when a container of the pod starts, exits
// or runs out of memory. Values coalesce; the channel is closed when ctx is done.
func (p *Pods) Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error) {
	return p.watch.subscribe(ctx, string(pod.UID)), nil
}

func (st *podState) setWaiting(container string, w waiting) {
	st.memo.Lock()
	defer st.memo.Unlock()
	st.waiting[container] = w
}

func (st *podState) clearWaiting(container string) {
	st.memo.Lock()
	defer st.memo.Unlock()
	delete(st.waiting, container)
}

// countCrashes updates the crash counters from the newest instances and returns them. A
// container that ran for ten minutes starts anew.
func (st *podState) countCrashes(cs map[string]engine.Container) map[string]int {
	st.memo.Lock()
	defer st.memo.Unlock()
	counts := make(map[string]int, len(cs))
	for name, c := range cs {
		k := st.crashes[name]
		if c.State == engine.StateExited && k.lastID != c.ID && !st.isGone(c) {
			if c.Exit.FinishedAt.Sub(c.Exit.StartedAt) > crashReset {
				k.count = 0
			}
			k = crash{count: k.count + 1, lastID: c.ID}
			st.crashes[name] = k
		}
		counts[name] = k.count
	}
	return counts
}

// isGone is reset.gone for who has locked the memo.
func (st *podState) isGone(c engine.Container) bool { return st.reset != nil && st.reset.gone(c) }

// countsNot keeps the end of an instance from making its back-off longer.
func (st *podState) countsNot(c engine.Container) {
	st.memo.Lock()
	defer st.memo.Unlock()
	st.crashes[c.Name] = crash{count: st.crashes[c.Name].count, lastID: c.ID}
}
