package apiserver

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/serve/mirror"
	"github.com/runonce/runonce/runtime/serve/objects"
)

// Usage measures what is used.
type Usage interface {
	// Used returns what a pod and its containers, by name, have used.
	Used(ctx context.Context, pod *v1.Pod) (podusage.Sample, map[string]podusage.Sample, error)
	// Machine returns what all of the machine has used.
	Machine() (podusage.Sample, error)
}

// Of two samples, the older one has this age at least, and at most.
const (
	shortestWindow = time.Second
	renewedWindow  = 15 * time.Second
	longestWindow  = time.Minute
)

// usageResources are those of the resource metrics API, which metrics-server serves on a cluster.
func usageResources() []*resource {
	of := func(name, kind string, namespaced bool, list func() runtime.Object, compute computation) *resource {
		return &resource{APIResource: metav1.APIResource{
			Name: name, Kind: kind, Namespaced: namespaced, Group: metricsv1beta1.GroupName, Version: "v1beta1", Verbs: metav1.Verbs{"get", "list"},
		}, list: list, compute: compute}
	}
	return []*resource{
		of("nodes", "NodeMetrics", false, func() runtime.Object { return &metricsv1beta1.NodeMetricsList{} }, (*server).nodeMetrics),
		of("pods", "PodMetrics", true, func() runtime.Object { return &metricsv1beta1.PodMetricsList{} }, (*server).podMetrics),
	}
}

// samples are what was used up to a moment, by the UID of a pod and the name of its container; "" is the machine.
type samples struct {
	at   time.Time
	used map[containerKey]podusage.Sample
}

type containerKey struct{ uid, name string }

// sampler keeps the samples with which later ones are compared.
type sampler struct {
	mu     sync.Mutex
	before samples
}

// take measures what is used now.
func (s *server) take(ctx context.Context, pods []objects.Object) (samples, error) {
	now := samples{at: time.Now(), used: map[containerKey]podusage.Sample{}}
	machine, err := s.Usage.Machine()
	if err != nil {
		return now, err
	}
	now.used[containerKey{}] = machine
	for _, o := range pods {
		pod, ok := o.(*v1.Pod)
		if !ok || !podspec.AnyRuns(pod.Status) {
			continue
		}
		_, containers, err := s.Usage.Used(ctx, pod)
		if err != nil {
			s.Log.DebugContext(ctx, "could not read what the pod has used", "pod", podspec.FullName(pod), "error", err)
			continue // it has just ended
		}
		for name, used := range containers {
			now.used[containerKey{string(pod.UID), name}] = used
		}
	}
	return now, nil
}

// measured returns what is used: what two samples differ by. The first one may be that of an earlier request; if there is
// none, it is waited for the second one.
func (s *server) measured(ctx context.Context, kept *sampler, pods []objects.Object) (before, now samples, err error) {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if now, err = s.take(ctx, pods); err != nil {
		return before, now, err
	}
	before = kept.before
	if age := now.at.Sub(before.at); age < shortestWindow || age > longestWindow || lacks(before, now) {
		before = now
		select {
		case <-time.After(shortestWindow):
		case <-ctx.Done():
			return before, now, context.Cause(ctx)
		}
		if now, err = s.take(ctx, pods); err != nil {
			return before, now, err
		}
		kept.before = before
	}
	if now.at.Sub(before.at) > renewedWindow {
		kept.before = now
	}
	return before, now, nil
}

// lacks says whether a container is new.
func lacks(before, now samples) bool {
	for key := range now.used {
		if _, ok := before.used[key]; !ok {
			return true
		}
	}
	return false
}

func usageList(u podusage.Usage) v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU:    *apiresource.NewMilliQuantity(u.CPUMillicores, apiresource.DecimalSI),
		v1.ResourceMemory: *apiresource.NewQuantity(u.MemoryBytes, apiresource.BinarySI),
	}
}

// of returns what was used by one.
func used(before, now samples, key containerKey) v1.ResourceList {
	return usageList(now.used[key].Since(before.used[key], now.at.Sub(before.at)))
}

func (s *server) nodeMetrics(ctx context.Context, _ request) ([]objects.Object, error) {
	nodes, _, err := s.Mirror.Store().List(mirror.Nodes, 0)
	if err != nil {
		return nil, err
	}
	before, now, err := s.measured(ctx, &s.ofNodes, nil)
	if err != nil {
		return nil, err
	}
	all := make([]objects.Object, 0, len(nodes))
	for _, node := range nodes {
		all = append(all, &metricsv1beta1.NodeMetrics{
			ObjectMeta: measuredMeta(node), Timestamp: metav1.NewTime(now.at), Window: metav1.Duration{Duration: now.at.Sub(before.at)},
			Usage: used(before, now, containerKey{}),
		})
	}
	return all, nil
}

func measuredMeta(o objects.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(), CreationTimestamp: metav1.Now()}
}

func (s *server) podMetrics(ctx context.Context, q request) ([]objects.Object, error) {
	if err := s.Mirror.Sync(ctx); err != nil {
		return nil, err
	}
	pods, _, err := s.Mirror.Store().List(mirror.Pods, 0)
	if err != nil {
		return nil, err
	}
	before, now, err := s.measured(ctx, &s.ofPods, pods)
	if err != nil {
		return nil, err
	}
	var all []objects.Object
	for _, o := range pods {
		pod, ok := o.(*v1.Pod)
		if !ok || q.namespace != "" && pod.Namespace != q.namespace {
			continue
		}
		m := &metricsv1beta1.PodMetrics{
			ObjectMeta: measuredMeta(pod), Timestamp: metav1.NewTime(now.at), Window: metav1.Duration{Duration: now.at.Sub(before.at)},
		}
		for _, cs := range podspec.AllStatuses(pod.Status) {
			key := containerKey{string(pod.UID), cs.Name}
			if _, ok := now.used[key]; ok && cs.State.Running != nil {
				m.Containers = append(m.Containers, metricsv1beta1.ContainerMetrics{Name: cs.Name, Usage: used(before, now, key)})
			}
		}
		if len(m.Containers) > 0 {
			all = append(all, m)
		}
	}
	return all, nil
}
