// Package runtime runs pods on this node. It observes a pod, package podstate decides what to
// do, and this package does it.
package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	goruntime "runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// cleanupTimeout bounds what is undone after an error or an interruption.
const cleanupTimeout = 30 * time.Second

// Pods runs pods on this node. It is safe for concurrent use, also by several processes on
// one root: calls that change one pod wait for each other.
type Pods struct {
	o      Options
	logs   logs.Store
	watch  watch
	probes probes
	images *imagePuller
	events *recorder
	// removals bounds how many pods are removed at once. All at once they would slow each other
	// down until calls time out.
	removals chan struct{}

	mu       sync.Mutex // guards the rest
	memories map[types.UID]*memory
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
		removals: make(chan struct{}, 8*goruntime.NumCPU()), memories: map[types.UID]*memory{},
	}
	p.events = newRecorder(p.logs, &p.o)
	p.images = newImagePuller(&p.o, p.events)
	changes, err := o.Engine.Events(ctx)
	if err != nil {
		return nil, err
	}
	go func() {
		for e := range changes {
			p.watch.notify(e.PodUID)
		}
	}()
	context.AfterFunc(ctx, p.probes.stopAll)
	return p, nil
}

// noRecord is that of a pod without one. It must not be changed.
var noRecord = &record.Pod{}

// known returns the pod's record, noRecord for none.
func (p *Pods) known(uid types.UID) (*record.Pod, error) {
	known, err := p.o.Records.Load(uid)
	if errors.Is(err, fs.ErrNotExist) {
		return noRecord, nil
	}
	return known, err
}

// update changes the pod's record.
func (p *Pods) update(pod *v1.Pod, change func(*record.Pod)) error {
	_, err := p.o.Records.Update(pod.UID, func(r *record.Pod) error {
		change(r)
		return nil
	})
	return err
}

// lockOwned locks the pod. Its error is a *record.LostError if another process has stopped the pod.
func (p *Pods) lockOwned(ctx context.Context, uid types.UID) (record.Lock, error) {
	lock, err := p.o.Records.Lock(ctx, uid)
	if err != nil {
		return lock, err
	}
	known, err := p.known(uid)
	if err == nil {
		err = p.o.Records.Owned(known)
	}
	if err != nil {
		lock.Release()
	}
	return lock, err
}

// remember calls f with what is remembered of the pod.
func (p *Pods) remember(uid types.UID, f func(*memory)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.memories[uid]
	if !ok {
		m = newMemory()
		p.memories[uid] = m
		p.images.see(uid)
	}
	f(m)
}

// forget ends the work on a pod that another process has stopped. Only what reports need of it is
// remembered.
func (p *Pods) forget(uid types.UID) {
	p.probes.keepOnly(uid, nil)
	p.images.forget(uid)
	p.remember(uid, func(m *memory) {
		last := newMemory()
		last.annotations, last.logPaths = m.annotations, m.logPaths
		*m = *last
	})
}

// forgetOthers forgets the pods that this process has not worked on, and that have no record any more.
func (p *Pods) forgetOthers(known []*record.Pod) {
	recorded := make(map[types.UID]bool, len(known))
	for _, r := range known {
		recorded[r.Pod.UID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.memories, func(uid types.UID, m *memory) bool {
		if m.synced || recorded[uid] {
			return false
		}
		p.images.forget(uid)
		return true
	})
}

// once sets a field of the pod's memory and reports whether it was not set before.
func (p *Pods) once(uid types.UID, field func(*memory) *bool) (first bool) {
	p.remember(uid, func(m *memory) {
		first = !*field(m)
		*field(m) = true
	})
	return first
}

// work is a pod while what was decided for it is carried out.
type work struct {
	pod     *v1.Pod
	lock    record.Lock
	sandbox engine.Sandbox
	record  *record.Pod
	// fresh says that the pod has no containers yet, so that what was prepared may be undone.
	fresh bool
	// running are the containers, by name, that have been started and run.
	running map[string]engine.Container
}

// sandboxOf returns what the container shares with others: for an ephemeral container with a target, the process
// namespace of that, unless all of the pod or of the machine have one (SecurityContext of
// pkg/kubelet/kuberuntime, with NamespaceMode_TARGET).
func (w *work) sandboxOf(c *v1.Container) (engine.Sandbox, error) {
	target := podspec.ProcessTarget(w.pod, c.Name)
	if target == "" || w.pod.Spec.HostPID || podstate.SharesProcesses(w.pod) {
		return w.sandbox, nil
	}
	at := w.running[target]
	if at.PID == 0 {
		return w.sandbox, fmt.Errorf("its target, the container %q, is not running", target)
	}
	own := w.sandbox
	own.PIDNS = pidNamespace(at)
	return own, nil
}

// Conclude keeps what the run of this process has decided about the pod for later processes. An
// empty outcome is none. It has no effect on the pod, whose record has it until a run admits the pod
// again or the pod is removed.
func (p *Pods) Conclude(_ context.Context, pod *v1.Pod, outcome, reason, message string) error {
	if outcome == "" {
		return p.o.Records.Conclude(pod.UID, nil)
	}
	return p.o.Records.Conclude(pod.UID, &record.Outcome{Outcome: outcome, Reason: reason, Message: message, DecidedAt: time.Now()})
}

// Changes returns a channel that gets a value when a container of the pod starts, exits
// or runs out of memory. Values coalesce; the channel is closed when ctx is done.
func (p *Pods) Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error) {
	p.remember(pod.UID, func(*memory) {}) // what is pulled for others from now on is for this pod, too
	return p.watch.subscribe(ctx, string(pod.UID)), nil
}

// OnChange has f called with the UID of each pod whose status has changed, as Changes tells, or with "" if it may be any
// pod, until ctx is done. f must not block.
func (p *Pods) OnChange(ctx context.Context, f func(types.UID)) {
	p.watch.add(ctx, func(uid string) { f(types.UID(uid)) }, func() {})
}

// watch fans the engine's events out to those who wait for changes. The zero value is ready for use.
type watch struct {
	mu   sync.Mutex
	subs map[*func(podUID string)]struct{}
}

// notify tells all of them that the pod has changed, or that some pod has if it is "".
func (w *watch) notify(podUID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.subs {
		(*f)(podUID)
	}
}

// add has f called until ctx is done, and then done.
func (w *watch) add(ctx context.Context, f func(podUID string), done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs == nil {
		w.subs = map[*func(string)]struct{}{}
	}
	w.subs[&f] = struct{}{}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs, &f)
		done()
	})
}

// subscribe returns a channel that gets a value when the pod changes. It is closed when ctx is done.
func (w *watch) subscribe(ctx context.Context, podUID string) <-chan struct{} {
	ch := make(chan struct{}, 1)
	w.add(ctx, func(uid string) {
		if uid != "" && uid != podUID {
			return
		}
		select {
		case ch <- struct{}{}:
		default: // a wake-up is pending already
		}
	}, func() { close(ch) })
	return ch
}
