// Package mirror follows what becomes of the pods of this machine, whichever process runs them: by the engine's events,
// and by the files in which processes record what they do.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/definitions"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// The resources that a mirror keeps.
const (
	Events     = "events"
	Namespaces = "namespaces"
	Nodes      = "nodes"
	Pods       = "pods"
	Services   = "services"
)

const (
	// rest is the time between two looks, so that changes that come together are seen together and many changes cost
	// little.
	rest = 50 * time.Millisecond
	// patience is the time after which it looks without a reason: what cannot be observed is tried again, and an event
	// of the kernel may be lost.
	patience = 10 * time.Second
)

// Runtime runs the pods, as *runtime.Pods does, whose methods these are.
type Runtime interface {
	Known(admitted bool) ([]*record.Pod, error)
	Listed(ctx context.Context, r *record.Pod, look bool) (*v1.Pod, error)
	OnChange(ctx context.Context, f func(types.UID))
}

// Options say what is followed.
type Options struct {
	Runtime Runtime
	// Look says that nobody else in this process probes the pods, so that it has to be found out whether they are ready.
	Look bool
	// Records has the records of the pods, and Logs their events.
	Records *record.Store
	Logs    logs.Store
	// Services returns the Services that are defined.
	Services func() ([]*v1.Service, error)
	Node     *v1.Node
	Log      *slog.Logger
}

// Mirror keeps the objects of the machine. It is safe for concurrent use.
type Mirror struct {
	o     Options
	store *objects.Store
	since metav1.Time
	wake  chan struct{}

	mu    sync.Mutex // guards the next three
	dirty map[types.UID]bool
	all   bool // all pods are dirty
	begun int  // looks that have begun

	looks  sync.Mutex // held during a look; guards the rest
	done   int        // the last look that was not interrupted
	err    error      // of that one
	files  watcher
	pods   map[types.UID]seenPod
	events map[string]seenEvents // by path
	// definitions are by the names of their files, and concluded is the version with which they had their status.
	definitions map[string]seenDefinition
	concluded   uint64
}

// seenPod is a pod as it was last observed.
type seenPod struct {
	record *record.Pod
	name   types.NamespacedName
	// created is when it was started, or first seen if it was not started then.
	created metav1.Time
	// stopping is when it was first seen that the pod is being stopped.
	stopping *metav1.Time
}

// New returns a mirror, whose Run has to be called.
func New(o Options) *Mirror {
	now := time.Now()
	m := &Mirror{
		o: o, since: metav1.NewTime(now.Truncate(time.Second)), wake: make(chan struct{}, 1), all: true,
		// More changes than one in a millisecond over its whole life would be needed to reach the versions of a later one.
		store: objects.New(uint64(now.UnixMilli())),
		dirty: map[types.UID]bool{}, pods: map[types.UID]seenPod{}, events: map[string]seenEvents{},
	}
	m.store.Set(Nodes, m.node())
	return m
}

// Store has the objects.
func (m *Mirror) Store() *objects.Store { return m.store }

// Run follows the pods until ctx is done.
func (m *Mirror) Run(ctx context.Context) {
	m.follow(ctx, m.watchFiles(ctx))
}

// follow is Run, with a channel that gets a value when a file has changed.
func (m *Mirror) follow(ctx context.Context, changed <-chan struct{}) {
	m.o.Runtime.OnChange(ctx, m.mark)
	m.mark("") // what has changed since a client has asked, before there was anybody to tell
	retry := time.NewTimer(patience)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-changed:
		case <-retry.C:
		}
		if err := m.Sync(ctx); err != nil && ctx.Err() == nil {
			m.o.Log.DebugContext(ctx, "could not observe all pods", "error", err)
		}
		retry.Reset(patience)
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}

// mark has a pod observed again, or all for "".
func (m *Mirror) mark(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if uid == "" {
		m.all = true
	} else {
		m.dirty[uid] = true
	}
	select {
	case m.wake <- struct{}{}:
	default: // it is awake
	}
}

// again has pods observed again with the next look, which it does not cause: it would most likely fail, too.
func (m *Mirror) again(all bool, uids map[types.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = m.all || all
	maps.Copy(m.dirty, uids)
}

// Sync returns when the store has all that had happened before the call, as far as it is known. The error says what
// could not be observed, which is as it was before.
func (m *Mirror) Sync(ctx context.Context) error {
	m.mu.Lock()
	before := m.begun
	m.mu.Unlock()
	m.looks.Lock()
	defer m.looks.Unlock()
	if m.done > before { // it has begun while we waited
		return m.err
	}
	m.mu.Lock()
	m.begun++
	begun, dirty, all := m.begun, m.dirty, m.all
	m.dirty, m.all = map[types.UID]bool{}, false
	m.mu.Unlock()
	err := m.look(ctx, all, dirty)
	if ctx.Err() == nil { // else those who wait look for themselves
		m.done, m.err = begun, err
	}
	return err
}

// look brings the store up to date.
func (m *Mirror) look(ctx context.Context, all bool, dirty map[types.UID]bool) error {
	m.files.watch(m.o.Records.Root(), filepath.Dir(m.o.Records.Dir("uid")), m.o.Logs.Dir, definitions.Dir(m.o.Records.Root()))
	err := errors.Join(m.lookAtPods(ctx, all, dirty), m.lookAtEvents(), m.lookAtServices(), m.lookAtDefinitions())
	m.setNamespaces()
	return err
}

func (m *Mirror) lookAtPods(ctx context.Context, all bool, dirty map[types.UID]bool) error {
	known, err := m.o.Runtime.Known(true)
	if err != nil {
		m.again(all, dirty)
		return err
	}
	gone := maps.Clone(m.pods)
	for _, r := range newest(known) {
		uid := r.Pod.UID
		delete(gone, uid)
		if m.pods[uid].record != r || all || dirty[uid] {
			err = errors.Join(err, m.lookAtPod(ctx, r))
		}
	}
	for uid, seen := range gone {
		delete(m.pods, uid)
		m.deletePod(uid, seen.name)
	}
	return err
}

// newest returns those of the records that are shown: of several pods of one name, as when one was renamed or its
// removal has failed, the one that was started last.
func newest(known []*record.Pod) []*record.Pod {
	shown := make(map[types.NamespacedName]*record.Pod, len(known))
	for _, r := range known {
		name := podspec.NameOf(r.Pod)
		if other := shown[name]; other == nil || !r.Started.Before(other.Started) {
			shown[name] = r
		}
	}
	return slices.DeleteFunc(known, func(r *record.Pod) bool { return shown[podspec.NameOf(r.Pod)] != r })
}

// deletePod deletes a pod, unless the name is that of another one by now.
func (m *Mirror) deletePod(uid types.UID, name types.NamespacedName) {
	if o, ok := m.store.Get(Pods, name); ok && o.GetUID() == uid {
		m.store.Delete(Pods, name)
	}
}

func (m *Mirror) lookAtPod(ctx context.Context, known *record.Pod) error {
	uid := known.Pod.UID
	listed, r, err := m.observe(ctx, uid)
	if err != nil {
		m.again(false, map[types.UID]bool{uid: true})
		return fmt.Errorf("observing pod %q: %w", known.Pod.Name, err)
	}
	if r == nil {
		return nil
	}
	seen := m.pods[uid]
	if name := podspec.NameOf(r.Pod); seen.name != name {
		m.deletePod(uid, seen.name)
		seen.name = name
	}
	seen.record = known
	if seen.created.IsZero() {
		seen.created = metav1.NewTime(started(r).Truncate(time.Second))
	}
	if !r.IsStopping() {
		seen.stopping = nil
	} else if seen.stopping == nil {
		seen.stopping = new(metav1.Now())
	}
	m.pods[uid] = seen
	m.store.Set(Pods, m.complete(listed, seen))
	return nil
}

// maxObservations bounds how often a pod is observed whose record changes all the time.
const maxObservations = 5

// observe returns a pod, and the record with which it was observed. What is seen of a pod that is being stopped, with the
// record from before the stop, or after it without one, looks like what has never happened. The record is nil if there
// is none by now, or of a pod that is removed.
func (m *Mirror) observe(ctx context.Context, uid types.UID) (pod *v1.Pod, r *record.Pod, err error) {
	now, err := m.o.Records.Load(uid)
	for range maxObservations {
		if errors.Is(err, fs.ErrNotExist) || err == nil && now.Removed {
			return nil, nil, nil
		}
		if r = now; err == nil {
			pod, err = m.o.Runtime.Listed(ctx, r, m.o.Look)
		}
		if err != nil {
			return nil, nil, err
		}
		if now, err = m.o.Records.Load(uid); err == nil && now == r {
			break
		}
	}
	return pod, r, nil
}

// started returns when the pod was started, which is now if it was not.
func started(r *record.Pod) time.Time {
	if r.Started.IsZero() {
		return time.Now()
	}
	return r.Started
}

// complete adds what the API server and the scheduler would have set.
func (m *Mirror) complete(pod *v1.Pod, seen seenPod) *v1.Pod {
	if pod.Spec.NodeName == "" {
		pod.Spec.NodeName = m.o.Node.Name
	}
	if pod.CreationTimestamp.IsZero() {
		pod.CreationTimestamp = seen.created
	}
	if seen.stopping != nil {
		grace := podspec.TerminationGrace(pod) // after which it is over, for the API
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(seen.stopping.Add(grace))), new(int64(grace.Seconds()))
		m.showStopping(pod)
	}
	return pod
}

// showStopping has a pod that is being stopped look as under a kubelet: it runs until its containers have ended, and
// goes with the states in which they were last seen, although they are removed before it.
func (m *Mirror) showStopping(pod *v1.Pod) {
	o, _ := m.store.Get(Pods, podspec.NameOf(pod))
	before, known := o.(*v1.Pod)
	if known = known && before.UID == pod.UID; known {
		keepStates(&pod.Status, before.Status)
	}
	switch {
	case known && podspec.Ended(before.Status.Phase): // which is final
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = before.Status.Phase, before.Status.Reason, before.Status.Message
	case podspec.AnyRuns(pod.Status):
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = v1.PodRunning, "", ""
	}
}

// keepStates has the containers that are removed in the states that they had before.
func keepStates(now *v1.PodStatus, before v1.PodStatus) {
	if !slices.ContainsFunc(podspec.AllStatuses(*now), exists) {
		*now = before
		return
	}
	known := podspec.AllStatuses(before)
	for _, all := range [][]v1.ContainerStatus{now.InitContainerStatuses, now.ContainerStatuses, now.EphemeralContainerStatuses} {
		for i, cs := range all {
			same := func(other v1.ContainerStatus) bool { return other.Name == cs.Name }
			if k := slices.IndexFunc(known, same); k >= 0 && !exists(cs) {
				all[i] = known[k]
			}
		}
	}
}

func exists(cs v1.ContainerStatus) bool { return cs.ContainerID != "" }

func (m *Mirror) lookAtServices() error {
	services, err := m.o.Services()
	if err != nil {
		return err
	}
	all := make([]objects.Object, 0, len(services))
	for _, s := range services {
		all = append(all, identified(s.DeepCopy(), Services, m.since))
	}
	m.store.Replace(Services, all)
	return nil
}

// GetPods returns the pods with their status, which must not be changed.
func (m *Mirror) GetPods(ctx context.Context) ([]*v1.Pod, error) {
	if err := m.Sync(ctx); err != nil {
		return nil, err
	}
	all, _, err := m.store.List(Pods, 0)
	pods := make([]*v1.Pod, 0, len(all))
	for _, o := range all {
		if pod, ok := o.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods, err
}

// FindPod returns a pod with its status, if there is one. It must not be changed.
func (m *Mirror) FindPod(ctx context.Context, namespace, name string) (*v1.Pod, bool, error) {
	if err := m.Sync(ctx); err != nil {
		return nil, false, err
	}
	o, _ := m.store.Get(Pods, types.NamespacedName{Namespace: namespace, Name: name})
	pod, found := o.(*v1.Pod)
	return pod, found, nil
}

// watchFiles returns a channel that gets a value when a file has changed that looks read.
func (m *Mirror) watchFiles(ctx context.Context) <-chan struct{} {
	m.looks.Lock() // clients may ask already
	defer m.looks.Unlock()
	changed, err := m.files.open(ctx)
	if err != nil {
		m.o.Log.WarnContext(ctx, "changes are only seen now and then", "period", patience, "error", err)
	}
	return changed
}
