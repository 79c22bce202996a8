// Package provider is a provider for virtual-kubelet, so that a cluster can drive the runtime: it runs
// the pods of a node and describes the node. It is a module of its own, because virtual-kubelet needs many others.
package provider

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

var (
	_ node.PodLifecycleHandler = (*Provider)(nil)
	_ node.PodNotifier         = (*Provider)(nil)
)

// Pods is what the provider drives; *runtime.Pods is one.
type Pods interface {
	Sync(ctx context.Context, pod *v1.Pod) error
	Update(ctx context.Context, pod *v1.Pod) error
	Refresh(ctx context.Context, pod *v1.Pod) error
	Fail(ctx context.Context, pod *v1.Pod, reason, message string) error
	Status(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error)
	Stop(ctx context.Context, pod *v1.Pod) error
	List(ctx context.Context) ([]*v1.Pod, error)
	Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error)
	ExpireLogs() error
}

// Provider runs the pods that it is given until they are deleted. It does not admit them: the
// scheduler does, by the capacity that the node was registered with. It is safe for concurrent
// use.
type Provider struct {
	runtime Pods
	node    string
	log     *slog.Logger
	launch  func(w, before *podWorker)

	mu     sync.Mutex
	pods   map[types.NamespacedName]*podWorker // the newest of each name
	notify func(*v1.Pod)
}

// New returns the provider of a node, which works until ctx is done. It also has the pods that
// earlier processes were given for this node, but no others that are on the machine. Pods keep
// running after ctx is done.
func New(ctx context.Context, pods Pods, node string, log *slog.Logger) (*Provider, error) {
	p := &Provider{
		runtime: pods, node: node, log: log,
		pods: map[types.NamespacedName]*podWorker{},
	}
	p.launch = func(w, before *podWorker) { go p.work(ctx, w, before) }
	known, err := pods.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for pods of earlier processes: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range known {
		if pod.Annotations[podspec.AnnotationNode] == node {
			p.start(pod)
		}
	}
	return p, nil
}

// marked returns a copy of the pod by which a later process knows that it is the provider's.
func (p *Provider) marked(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, podspec.AnnotationNode, p.node)
	return pod
}

// start starts a worker for the pod. One of the same name is deleted first. p.mu is held.
func (p *Provider) start(pod *v1.Pod) {
	before := p.pods[podspec.NameOf(pod)]
	if before != nil {
		before.end(grace(before.current(), before.current()))
	}
	w := newWorker(p.marked(pod))
	p.pods[podspec.NameOf(pod)] = w
	p.launch(w, before)
}

func (p *Provider) find(namespace, name string) (*podWorker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.pods[types.NamespacedName{Namespace: namespace, Name: name}]; w != nil {
		return w, nil
	}
	return nil, errdefs.NotFoundf("pod %q in namespace %q not found", name, namespace)
}

// CreatePod starts the pod in the background. What keeps it from running is in its status, and
// retried. While an older pod of the same name still exists, the new one waits for its end: an
// error instead would make virtual-kubelet declare a pod that is never restarted as failed.
func (p *Provider) CreatePod(_ context.Context, pod *v1.Pod) error {
	if pod.UID == "" || pod.Name == "" || pod.Namespace == "" {
		return errdefs.InvalidInput("creating a pod: it needs a namespace, a name and a UID")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.pods[podspec.NameOf(pod)]; known == nil || known.current().UID != pod.UID {
		p.start(pod)
	}
	return nil
}

// UpdatePod replaces the definition of the pod. A container whose image has changed is replaced,
// as in the kubelet. A pod with another UID was deleted and created again.
func (p *Provider) UpdatePod(ctx context.Context, pod *v1.Pod) error {
	w, err := p.find(pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	if w.current().UID != pod.UID {
		return p.CreatePod(ctx, pod)
	}
	pod = p.marked(pod)
	if err := p.runtime.Update(ctx, pod); err != nil {
		return err
	}
	w.replace(pod)
	return nil
}

// DeletePod begins to delete the pod and returns. The pod is stopped within the grace period of
// its deletion (deletionGracePeriodSeconds), or else its own, all that belongs to it is removed,
// except for its logs, and its last status is notified. A further call may only shorten the grace
// period. The error for a pod that does not exist any more is "not found", which callers take
// for success.
func (p *Provider) DeletePod(_ context.Context, pod *v1.Pod) error {
	w, err := p.find(pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	known := w.current()
	if pod.UID != "" && known.UID != pod.UID {
		return errdefs.NotFoundf("deleting pod %q: not found", pod.Name)
	}
	w.end(grace(pod, known))
	return nil
}

// grace returns the pod's grace period: that of its deletion, or else its own, and at least one
// second (pkg/kubelet.calculateEffectiveGracePeriod).
func grace(deleted, known *v1.Pod) time.Duration {
	s := cmp.Or(deleted.DeletionGracePeriodSeconds, known.DeletionGracePeriodSeconds) // from an update
	if s == nil {
		return podspec.TerminationGrace(known)
	}
	return max(time.Duration(*s)*time.Second, time.Second)
}

// remove stops the pod and removes all that belongs to it, and reports whether that is done. The
// logs of pods that were deleted long before are removed, too.
func (p *Provider) remove(ctx context.Context, w *podWorker, grace time.Duration) bool {
	last := w.current().DeepCopy()
	graceful := last.DeepCopy()
	graceful.Spec.TerminationGracePeriodSeconds = new(int64(grace / time.Second))
	// Fail leaves the containers, so that their exits can be read.
	err := p.runtime.Fail(ctx, graceful, "", "")
	if err == nil {
		last.Status, err = p.runtime.Status(ctx, last)
	}
	if err == nil {
		err = p.runtime.Stop(ctx, last)
	}
	if err != nil {
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "could not delete the pod", "pod", podspec.FullName(last), "error", err)
		}
		return false
	}
	last.Status = deletedStatus(last.Status)
	p.mu.Lock()
	if p.pods[podspec.NameOf(last)] == w {
		delete(p.pods, podspec.NameOf(last))
	}
	p.mu.Unlock()
	p.notifyOf(last)
	if err := p.runtime.ExpireLogs(); err != nil {
		p.log.WarnContext(ctx, "could not remove old logs", "error", err)
	}
	return true
}

// GetPod returns a copy of the pod, with its status. It has an annotation that the cluster's does
// not have: virtual-kubelet calls UpdatePod only if the two differ, and does not compare UIDs.
func (p *Provider) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	w, err := p.find(namespace, name)
	if err != nil {
		return nil, err
	}
	pod := w.current().DeepCopy()
	if pod.Status, err = p.runtime.Status(ctx, pod); err != nil {
		return nil, err
	}
	return pod, nil
}

// FindPod returns a copy of the pod, with its status, if there is one.
func (p *Provider) FindPod(ctx context.Context, namespace, name string) (pod *v1.Pod, found bool, err error) {
	pod, err = p.GetPod(ctx, namespace, name)
	if errdefs.IsNotFound(err) {
		return nil, false, nil
	}
	return pod, err == nil, err
}

// GetPodStatus returns the status of the pod.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*v1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns copies of all pods, with their status, in order of namespace and name.
func (p *Provider) GetPods(ctx context.Context) ([]*v1.Pod, error) {
	p.mu.Lock()
	pods := make([]*v1.Pod, 0, len(p.pods))
	for _, w := range p.pods {
		pods = append(pods, w.current().DeepCopy())
	}
	p.mu.Unlock()
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(podspec.NameOf(a).String(), podspec.NameOf(b).String()) })
	for _, pod := range pods {
		var err error
		if pod.Status, err = p.runtime.Status(ctx, pod); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// NotifyPods sets the function that is called with a copy of a pod whenever its status has
// changed, until ctx is done; calls for one pod do not overlap. It does not block.
func (p *Provider) NotifyPods(ctx context.Context, notify func(*v1.Pod)) {
	p.mu.Lock()
	p.notify = notify
	for _, w := range p.pods {
		w.wake() // to report the present status
	}
	p.mu.Unlock()
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.notify = nil
	})
}

// notifyOf calls the notify function, if there is one.
func (p *Provider) notifyOf(pod *v1.Pod) bool {
	p.mu.Lock()
	notify := p.notify
	p.mu.Unlock()
	if notify != nil {
		pod = pod.DeepCopy()
		delete(pod.Annotations, podspec.AnnotationNode)
		notify(pod)
	}
	return notify != nil
}

// report notifies of the pod's status if it has changed since the last time.
func (p *Provider) report(ctx context.Context, w *podWorker) {
	pod := w.current().DeepCopy()
	st, err := p.runtime.Status(ctx, pod)
	if err != nil {
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "could not read the status of the pod", "pod", pod.Name, "error", err)
		}
		return
	}
	if w.reported != nil && reflect.DeepEqual(*w.reported, st) {
		return
	}
	pod.Status = st
	if p.notifyOf(pod) {
		w.reported = &st
	}
}

// deletedStatus is the status of a pod that was deleted: Succeeded when all of its containers
// have exited with 0 (pkg/kubelet.getPhase of a terminated pod). Those that never ran have
// terminated, too (TerminatePod of pkg/kubelet/status).
func deletedStatus(st v1.PodStatus) v1.PodStatus {
	st.Phase, st.Reason, st.Message = v1.PodSucceeded, "", ""
	for i := range st.ContainerStatuses {
		state := &st.ContainerStatuses[i].State
		if state.Terminated == nil {
			*state = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated",
			}}
		}
		if state.Terminated.ExitCode != 0 {
			st.Phase = v1.PodFailed
		}
	}
	return st
}
