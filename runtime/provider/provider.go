// Package provider gives the runtime the shape of virtual-kubelet's PodLifecycleHandler and
// PodNotifier (github.com/virtual-kubelet/virtual-kubelet/node), so that a cluster can
// drive it. Interfaces are structural: virtual-kubelet is not imported, and its errors are
// known by their behaviour (its errdefs).
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
}

// Provider runs the pods that it is given until they are deleted. It does not admit them:
// that is the scheduler's work, by the capacity that the node was registered with. It is
// safe for concurrent use.
type Provider struct {
	runtime Pods
	log     *slog.Logger

	mu     sync.Mutex
	pods   map[types.NamespacedName]*minder
	notify func(*v1.Pod)
	closed bool
}

// New returns a provider that minds the pods of earlier processes again, and works until
// ctx is done. Pods run on after that.
func New(ctx context.Context, pods Pods, log *slog.Logger) (*Provider, error) {
	p := &Provider{runtime: pods, log: log, pods: map[types.NamespacedName]*minder{}}
	known, err := pods.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for pods of earlier processes: %w", err)
	}
	p.mu.Lock()
	for _, pod := range known {
		p.begin(ctx, pod)
	}
	p.mu.Unlock()
	context.AfterFunc(ctx, p.close)
	return p, nil
}

func (p *Provider) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, m := range p.pods {
		m.cancel()
	}
}

// begin minds the pod, as long as nobody ends it, whatever becomes of ctx. p.mu is held.
func (p *Provider) begin(ctx context.Context, pod *v1.Pod) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &minder{pod: pod.DeepCopy(), wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	p.pods[nameOf(pod)] = m
	if p.closed {
		cancel()
	}
	go p.mind(work, m)
}

func nameOf(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

func (p *Provider) find(namespace, name string) (*minder, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.pods[types.NamespacedName{Namespace: namespace, Name: name}]; m != nil {
		return m, nil
	}
	return nil, fault{fmt.Errorf("pod %q of namespace %q is not known to this provider", name, namespace), notFound}
}

// CreatePod starts the pod and returns at once. What keeps it from running is told by its
// status, and tried again.
func (p *Provider) CreatePod(ctx context.Context, pod *v1.Pod) error {
	if pod.UID == "" || pod.Name == "" || pod.Namespace == "" {
		return fault{errors.New("creating a pod: it has no namespace, name or UID"), invalidInput}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.pods[nameOf(pod)]
	switch {
	case known == nil:
		p.begin(ctx, pod)
	case known.current().UID != pod.UID:
		return fault{fmt.Errorf("creating pod %q: another one of this name is still there", pod.Name), invalidInput}
	}
	return nil
}

// UpdatePod replaces the pod by one of the same UID. A container whose image changed is
// replaced, as by the kubelet.
func (p *Provider) UpdatePod(ctx context.Context, pod *v1.Pod) error {
	m, err := p.find(pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	if m.current().UID != pod.UID {
		return fault{fmt.Errorf("updating pod %q: its UID is another one", pod.Name), invalidInput}
	}
	pod = pod.DeepCopy()
	if err := p.runtime.Update(ctx, pod); err != nil {
		return err
	}
	m.replace(pod)
	return nil
}

// DeletePod stops the pod within the grace period of its deletion (deletionGracePeriodSeconds),
// or else its own, tells the notifier how it and its containers ended, and removes all that
// belongs to it but its logs. One that is not there any more is not found, which a caller
// takes for success.
func (p *Provider) DeletePod(ctx context.Context, pod *v1.Pod) error {
	m, err := p.find(pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	m.deletion.Lock()
	defer m.deletion.Unlock()
	if m.deleted || pod.UID != "" && m.current().UID != pod.UID {
		return fault{fmt.Errorf("deleting pod %q: it is gone", pod.Name), notFound}
	}
	m.cancel()
	<-m.done
	last := m.current().DeepCopy()
	// The end of its containers can be read as long as they are not removed.
	if err := p.runtime.Fail(ctx, within(grace(pod, last), last), "", ""); err != nil {
		return fmt.Errorf("deleting pod %q: %w", pod.Name, err)
	}
	st, err := p.runtime.Status(ctx, last)
	if err != nil {
		return fmt.Errorf("deleting pod %q: %w", pod.Name, err)
	}
	if err := p.runtime.Stop(ctx, last); err != nil {
		return fmt.Errorf("deleting pod %q: %w", pod.Name, err)
	}
	m.deleted = true
	last.Status = terminal(st)
	p.mu.Lock()
	delete(p.pods, nameOf(last))
	p.mu.Unlock()
	p.call(last)
	return nil
}

// grace returns the seconds that a pod has to end, nil for the API's default: what its
// deletion says, which the API server has worked out, counts before its own, and the least is
// one second (pkg/kubelet.calculateEffectiveGracePeriod).
func grace(deleted, known *v1.Pod) *int64 {
	s := deleted.DeletionGracePeriodSeconds
	if s == nil {
		s = known.DeletionGracePeriodSeconds // it was replaced by one that was being deleted
	}
	if s == nil {
		return known.Spec.TerminationGracePeriodSeconds
	}
	least := max(*s, 1)
	return &least
}

// within returns a copy of the pod with another grace period.
func within(seconds *int64, pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.TerminationGracePeriodSeconds = seconds
	return pod
}

// GetPod returns a copy of the pod, with its status.
func (p *Provider) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	m, err := p.find(namespace, name)
	if err != nil {
		return nil, err
	}
	pod := m.current().DeepCopy()
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
	for _, m := range p.pods {
		pods = append(pods, m.current().DeepCopy())
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

// NotifyPods has the function called with a copy of a pod whenever its status has changed,
// until ctx is done; calls for one pod do not overlap. It does not block.
func (p *Provider) NotifyPods(ctx context.Context, notify func(*v1.Pod)) {
	p.mu.Lock()
	p.notify = notify
	all := make([]*minder, 0, len(p.pods))
	for _, m := range p.pods {
		all = append(all, m)
	}
	p.mu.Unlock()
	for _, m := range all {
		m.rouse() // what is known by now is told, too
	}
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.notify = nil
	})
}

// call tells of the pod, when somebody listens.
func (p *Provider) call(pod *v1.Pod) bool {
	p.mu.Lock()
	notify := p.notify
	p.mu.Unlock()
	if notify != nil {
		notify(pod)
	}
	return notify != nil
}

// tell tells of the pod's status if it is not the one that was told last.
func (p *Provider) tell(ctx context.Context, m *minder) {
	pod := m.current().DeepCopy()
	st, err := p.runtime.Status(ctx, pod)
	if err != nil {
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "state of the pod unknown", "pod", pod.Name, "error", err)
		}
		return
	}
	if m.told != nil && reflect.DeepEqual(*m.told, st) {
		return
	}
	pod.Status = st
	if p.call(pod.DeepCopy()) {
		m.told = &st
	}
}

// terminal is the status of a pod that was deleted: Succeeded when all of its containers
// have exited with 0, as the kubelet has it (pkg/kubelet.getPhase of a terminated pod).
func terminal(st v1.PodStatus) v1.PodStatus {
	st.Phase, st.Reason, st.Message = v1.PodSucceeded, "", ""
	for _, cs := range st.ContainerStatuses {
		if t := cs.State.Terminated; t == nil || t.ExitCode != 0 {
			st.Phase = v1.PodFailed
		}
	}
	return st
}
