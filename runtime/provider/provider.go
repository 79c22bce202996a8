// Package provider implements virtual-kubelet's PodLifecycleHandler and PodNotifier
// (github.com/virtual-kubelet/virtual-kubelet/node) with the runtime, so that a cluster can
// drive it. virtual-kubelet need not be imported: its interfaces, and those of its errdefs, are
// implemented implicitly.
package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods is what the provider drives; *runtime.Pods is one.
type Pods interface {
	Sync(ctx context.Context, pod *v1.Pod) error
	Update(ctx context.Context, pod *v1.Pod) error
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
	log     *slog.Logger

	mu     sync.Mutex
	pods   map[types.NamespacedName]*podWorker
	notify func(*v1.Pod)
	closed bool
}

// notFound and invalidInput are errors for virtual-kubelet's errdefs.
type (
	notFound     struct{ error }
	invalidInput struct{ error }
)

// NotFound is true: the pod does not exist.
func (notFound) NotFound() bool { return true }

// InvalidInput is true: no retry can help.
func (invalidInput) InvalidInput() bool { return true }

// New returns a provider that also has the pods of earlier processes, and works until ctx is
// done. Pods keep running after that.
func New(ctx context.Context, pods Pods, log *slog.Logger) (*Provider, error) {
	p := &Provider{runtime: pods, log: log, pods: map[types.NamespacedName]*podWorker{}}
	known, err := pods.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for pods of earlier processes: %w", err)
	}
	p.mu.Lock()
	for _, pod := range known {
		p.start(ctx, pod)
	}
	p.mu.Unlock()
	context.AfterFunc(ctx, p.close)
	return p, nil
}

func (p *Provider) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, w := range p.pods {
		w.cancel()
	}
}

// start starts a worker for the pod, which does not end with ctx. p.mu is held.
func (p *Provider) start(ctx context.Context, pod *v1.Pod) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &podWorker{pod: pod.DeepCopy(), wakeup: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	p.pods[nameOf(pod)] = w
	if p.closed {
		cancel()
	}
	go p.work(ctx, w)
}

func nameOf(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

func (p *Provider) find(namespace, name string) (*podWorker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.pods[types.NamespacedName{Namespace: namespace, Name: name}]; w != nil {
		return w, nil
	}
	return nil, notFound{fmt.Errorf("pod %q in namespace %q not found", name, namespace)}
}

// CreatePod starts the pod in the background. What keeps it from running is in its status, and
// retried.
func (p *Provider) CreatePod(ctx context.Context, pod *v1.Pod) error {
	if pod.UID == "" || pod.Name == "" || pod.Namespace == "" {
		return invalidInput{errors.New("creating a pod: it needs a namespace, a name and a UID")}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.pods[nameOf(pod)]
	switch {
	case known == nil:
		p.start(ctx, pod)
	case known.current().UID != pod.UID:
		return invalidInput{fmt.Errorf("creating pod %q: another pod with this name still exists", pod.Name)}
	}
	return nil
}

// UpdatePod replaces the pod by one with the same UID. A container whose image has changed is
// replaced, as in the kubelet.
func (p *Provider) UpdatePod(ctx context.Context, pod *v1.Pod) error {
	w, err := p.find(pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	if w.current().UID != pod.UID {
		return invalidInput{fmt.Errorf("updating pod %q: the UID has changed", pod.Name)}
	}
	pod = pod.DeepCopy()
	if err := p.runtime.Update(ctx, pod); err != nil {
		return err
	}
	w.replace(pod)
	return nil
}

// DeletePod stops the pod within the grace period of its deletion (deletionGracePeriodSeconds),
// or else its own, removes all that belongs to it except for its logs, and notifies of its
// last status. The logs of pods that were deleted long before are removed, too. The error for a pod that does not exist any more is "not found", which callers
// take for success.
func (p *Provider) DeletePod(ctx context.Context, pod *v1.Pod) error {
	w, err := p.find(pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	w.deletion.Lock()
	defer w.deletion.Unlock()
	if w.deleted || pod.UID != "" && w.current().UID != pod.UID {
		return notFound{fmt.Errorf("deleting pod %q: not found", pod.Name)}
	}
	w.cancel()
	<-w.done
	last := w.current().DeepCopy()
	graceful := last.DeepCopy()
	graceful.Spec.TerminationGracePeriodSeconds = grace(pod, last)
	// Fail leaves the containers, so that their exits can be read.
	err = p.runtime.Fail(ctx, graceful, "", "")
	var st v1.PodStatus
	if err == nil {
		st, err = p.runtime.Status(ctx, last)
	}
	if err == nil {
		err = p.runtime.Stop(ctx, last)
	}
	if err != nil {
		return fmt.Errorf("deleting pod %q: %w", pod.Name, err)
	}
	w.deleted = true
	last.Status = deletedStatus(st)
	p.mu.Lock()
	delete(p.pods, nameOf(last))
	p.mu.Unlock()
	p.notifyOf(last)
	if err := p.runtime.ExpireLogs(); err != nil {
		p.log.WarnContext(ctx, "cannot remove old logs", "error", err)
	}
	return nil
}

// grace returns the pod's grace period in seconds, nil for the API's default: that of its
// deletion, which is at least one second, or else its own
// (pkg/kubelet.calculateEffectiveGracePeriod).
func grace(deleted, known *v1.Pod) *int64 {
	s := deleted.DeletionGracePeriodSeconds
	if s == nil {
		s = known.DeletionGracePeriodSeconds // from an update
	}
	if s == nil {
		return known.Spec.TerminationGracePeriodSeconds
	}
	least := max(*s, 1)
	return &least
}

// GetPod returns a copy of the pod, with its status.
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
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(nameOf(a).String(), nameOf(b).String()) })
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
			p.log.WarnContext(ctx, "reading the status of the pod", "pod", pod.Name, "error", err)
		}
		return
	}
	if w.reported != nil && reflect.DeepEqual(*w.reported, st) {
		return
	}
	pod.Status = st
	if p.notifyOf(pod.DeepCopy()) {
		w.reported = &st
	}
}

// deletedStatus is the status of a pod that was deleted: Succeeded when all of its containers
// have exited with 0 (pkg/kubelet.getPhase of a terminated pod).
func deletedStatus(st v1.PodStatus) v1.PodStatus {
	st.Phase, st.Reason, st.Message = v1.PodSucceeded, "", ""
	for _, cs := range st.ContainerStatuses {
		if t := cs.State.Terminated; t == nil || t.ExitCode != 0 {
			st.Phase = v1.PodFailed
		}
	}
	return st
}
