package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

const (
	// labelManaged is a label of everything that this program creates.
	labelManaged = "runonce/managed"
	// StatusDelay is how much longer a container may have ended than its status tells: kubelets look once
	// a second (pkg/kubelet.genericPlegRelistPeriod), and the times in a status are whole seconds.
	StatusDelay = 2 * time.Second
	// annotationContent has the UID that the input gives a pod, which stands for its content.
	annotationContent = podspec.AnnotationContent
	// quotaDelay is how long it may take until a quota does not count a pod any more that was deleted.
	quotaDelay = 10 * time.Second
	// goneInterval is how often the server is asked whether a deleted pod is gone.
	goneInterval = 5 * time.Second
)

// Options say how pods are run on a cluster.
type Options struct {
	// Namespaces returns those that are of interest when the user may not see all, and Namespace is another one
	// if the user may see it.
	Namespaces func() []string
	Namespace  string
	// Only says that just the pods of Namespace are of interest.
	Only bool
	// ScheduleTimeout is how long a pod may be unschedulable.
	ScheduleTimeout time.Duration
	// Trace, if set, is called with each step of a pod's start.
	Trace func(uid types.UID, step string, start time.Time, elapsed time.Duration)
	Log   *slog.Logger
}

// Pods runs pods on a cluster. It is a runonce.Runtime: its pods have the UID that the input gives
// them, not that of the cluster.
type Pods struct {
	c     *client
	o     Options
	cache *podCache
	trace trace
	seen  []string // the namespaces that are watched, nil for all

	followers []*follower // set by Open

	mu      sync.Mutex
	ended   map[types.UID]v1.PodStatus // of pods that this program has ended
	waiting map[types.UID]time.Time    // since when pods wait for a node or a quota; see waited
	lost    error                      // why the cluster cannot be used any more
	unseen  error                      // why Refresh has failed
}

// Open connects to a cluster, and follows the pods of this program until ctx is done.
func Open(ctx context.Context, c Config, o Options) (*Pods, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	cl, err := dial(ctx, c, o.Log)
	if err != nil {
		return nil, err
	}
	p := &Pods{c: cl, o: o, ended: map[types.UID]v1.PodStatus{}, waiting: map[types.UID]time.Time{}}
	p.trace.record = o.Trace
	p.cache = newPodCache(p.trace.state)
	if err := p.follow(ctx); err != nil {
		return nil, fmt.Errorf("API server %s: %w", cl.server, err)
	}
	return p, nil
}

// Seen returns the namespaces whose pods the user may see, nil for all.
func (p *Pods) Seen() []string { return p.seen }

// isOf reports whether a pod of the cluster, if there is one, is that of the input, unchanged.
func isOf(onCluster, pod *v1.Pod) bool {
	return onCluster != nil && onCluster.Annotations[annotationContent] == string(pod.UID)
}

// List returns the pods of all runs, by namespace and name.
func (p *Pods) List(context.Context) ([]*v1.Pod, error) {
	all := p.cache.all()
	pods := make([]*v1.Pod, 0, len(all))
	for _, pod := range all {
		pod = pod.DeepCopy()
		pod.UID = types.UID(pod.Annotations[annotationContent])
		if pod.DeletionTimestamp != nil {
			pod.UID = "" // it is about to be gone, so it is none of the input
		}
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(podspec.NameOf(a).String(), podspec.NameOf(b).String()) })
	return pods, nil
}

// Sync creates the pod, or says what keeps it from running.
func (p *Pods) Sync(ctx context.Context, pod *v1.Pod) error {
	if err := p.Lost(); err != nil {
		return err
	}
	there, last := p.cache.get(podspec.NameOf(pod))
	switch {
	case there == nil && p.ours(last, pod):
		return nil // Status says how it ended
	case there == nil:
		return p.create(ctx, pod)
	case there.DeletionTimestamp != nil && !p.ours(there, pod):
		return terminating(pod)
	case !isOf(there, pod):
		return conflict(pod)
	}
	if err := p.annotate(ctx, there, pod); err != nil {
		return err
	}
	return p.obstacle(ctx, there)
}

// annotate sets the annotations of a pod of the cluster that differ from the input: one that has not
// changed may come from other files now.
func (p *Pods) annotate(ctx context.Context, there, pod *v1.Pod) error {
	changed := map[string]string{}
	for name, value := range pod.Annotations {
		if there.Annotations[name] != value {
			changed[name] = value
		}
	}
	if len(changed) == 0 || there.DeletionTimestamp != nil {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"uid": there.UID, "annotations": changed}}
	now := &v1.Pod{}
	if err := p.c.patch(ctx, there, patch, now); err != nil {
		return requestError("annotating the pod", err)
	}
	p.cache.put(now)
	return nil
}

// ours reports whether a pod of the cluster, if there is one, is that of the input as this run found or
// created it, and not one that was being deleted by then.
func (p *Pods) ours(onCluster, pod *v1.Pod) bool {
	return isOf(onCluster, pod) && !p.trace.leaving(onCluster)
}

func terminating(pod *v1.Pod) error {
	return &failure.Error{Why: "Terminating", Wait: deletingWait, Err: fmt.Errorf("an earlier pod %q is still being deleted", pod.Name)}
}

func conflict(pod *v1.Pod) error {
	return failure.Permanentf("another pod %q exists in the namespace %q: delete it or rename this one", pod.Name, pod.Namespace)
}

// create creates the pod. What the server refuses is rejected: it would also have been refused
// before, unless something has changed meanwhile, such as what is left of a quota.
func (p *Pods) create(ctx context.Context, pod *v1.Pod) error {
	created, begin := &v1.Pod{}, time.Now()
	err := p.c.limited(ctx, func() error { return p.c.create(ctx, forCluster(pod), false, created) })
	switch {
	case apierrors.IsAlreadyExists(err):
		return p.adopt(ctx, pod)
	case isQuota(err) && p.waited(pod.UID) < quotaDelay:
		return &failure.Error{Why: string(metav1.StatusReasonForbidden), Wait: time.Second, Err: errors.New(words(err))}
	case isDenied(err):
		return denial(err)
	case err != nil && !isTransient(err):
		return rejected(string(apierrors.ReasonForError(err)), words(err))
	case err != nil:
		return requestError("creating the pod", err)
	}
	p.trace.step(pod.UID, "create", begin, time.Since(begin))
	p.cache.put(created)
	return nil
}

// waited returns how long a pod has waited, by the clock of this machine: the cluster may have another
// one. It is 0 at the first call. For a node a pod waits under the cluster's UID, for a quota under the
// input's.
func (p *Pods) waited(uid types.UID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.waiting[uid]; !ok {
		p.waiting[uid] = time.Now()
	}
	return time.Since(p.waiting[uid])
}

// adopt takes a pod that exists: an earlier try may have created it without getting an answer.
func (p *Pods) adopt(ctx context.Context, pod *v1.Pod) error {
	there := &v1.Pod{}
	err := p.c.get(ctx, podspec.NameOf(pod), there)
	switch {
	case err != nil:
		return requestError("looking at the pod", err)
	case there.DeletionTimestamp != nil:
		return terminating(pod)
	case !isOf(there, pod):
		return conflict(pod)
	}
	p.cache.put(there)
	return nil
}

// forCluster returns the pod as it is created.
func forCluster(pod *v1.Pod) *v1.Pod {
	c := pod.DeepCopy()
	c.ObjectMeta = metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, Labels: c.Labels, Annotations: c.Annotations,
		OwnerReferences: c.OwnerReferences, Finalizers: c.Finalizers,
	}
	c.Status = v1.PodStatus{}
	metav1.SetMetaDataLabel(&c.ObjectMeta, labelManaged, "true")
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, annotationContent, string(pod.UID))
	return c
}

// Status returns the pod's status as of the last event. A pod that was deleted by somebody else
// has failed.
func (p *Pods) Status(_ context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	p.mu.Lock()
	ended, ok := p.ended[pod.UID]
	p.mu.Unlock()
	there, last := p.cache.get(podspec.NameOf(pod))
	switch {
	case ok:
		return *ended.DeepCopy(), nil
	case p.ours(there, pod):
		st := observed(there, false)
		p.trace.correctClock(there.UID, &st)
		return st, nil
	case there == nil && p.ours(last, pod):
		return observed(last, true), nil
	}
	return v1.PodStatus{Phase: v1.PodPending}, nil
}

// observed returns the status of a pod of the cluster, or its last one if it is gone. A pod that is
// deleted has failed, also if its containers then exit with code 0, unless it had ended before.
func observed(pod *v1.Pod, gone bool) v1.PodStatus {
	st := *pod.Status.DeepCopy()
	if pod.DeletionTimestamp == nil && !gone || podspec.Ended(st.Phase) && endedByItself(pod) {
		return st
	}
	st.Phase, st.Reason, st.Message = v1.PodFailed, "Deleted", "the pod was deleted from the cluster"
	if c := podspec.Condition(st, v1.DisruptionTarget); c.Status == v1.ConditionTrue {
		st.Reason, st.Message = c.Reason, c.Message
	}
	return st
}

// endedByItself reports whether all containers of a pod had ended when its deletion was asked for.
func endedByItself(pod *v1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return true
	}
	asked := pod.DeletionTimestamp.Time
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		asked = asked.Add(-time.Duration(*s) * time.Second)
	}
	return !slices.ContainsFunc(podspec.Statuses(pod.Status), func(cs v1.ContainerStatus) bool {
		t := cs.State.Terminated
		return t == nil || !t.FinishedAt.Time.Before(asked)
	})
}

// Changes returns a channel that gets a value when the pod's status changes.
func (p *Pods) Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error) {
	ch, cancel := p.cache.subscribe(podspec.NameOf(pod))
	context.AfterFunc(ctx, cancel)
	return ch, nil
}

// Look returns the pod of that name as it is now, with the status that Status would return, and the UID that the
// cluster has given it. There is none if the pod does not exist. The error says that the cluster is lost.
func (p *Pods) Look(name types.NamespacedName) (pod *v1.Pod, uid types.UID, err error) {
	if err := p.Lost(); err != nil {
		return nil, "", err
	}
	there, _ := p.cache.get(name)
	if there == nil {
		return nil, "", nil
	}
	pod = there.DeepCopy()
	pod.UID = types.UID(pod.Annotations[annotationContent])
	pod.Status = observed(there, false)
	p.trace.correctClock(there.UID, &pod.Status)
	return pod, there.UID, nil
}
