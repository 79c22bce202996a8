package cluster

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/runonce/runonce/internal/podspec"
)

// podCache has our pods on the cluster, as of the last event of the watch.
type podCache struct {
	mu      sync.Mutex
	pods    map[types.NamespacedName]*v1.Pod
	gone    map[types.NamespacedName]*v1.Pod // the last state of pods that are not there any more
	changes map[types.NamespacedName][]chan struct{}
	seen    func(*v1.Pod) // called with every new state of a pod
}

func newPodCache(seen func(*v1.Pod)) *podCache {
	return &podCache{
		pods: map[types.NamespacedName]*v1.Pod{}, gone: map[types.NamespacedName]*v1.Pod{},
		changes: map[types.NamespacedName][]chan struct{}{}, seen: seen,
	}
}

// get returns the pod, or else its last state; both nil for one that was never there. Nobody may
// change them.
func (c *podCache) get(name types.NamespacedName) (pod, last *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[name], c.gone[name]
}

// all returns the pods in no particular order.
func (c *podCache) all() []*v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := make([]*v1.Pod, 0, len(c.pods))
	for _, pod := range c.pods {
		pods = append(pods, pod)
	}
	return pods
}

// put has a new state of a pod, unless a newer one is known.
func (c *podCache) put(pod *v1.Pod) {
	pod.ManagedFields = nil // large, and of no use here
	c.mu.Lock()
	defer c.mu.Unlock()
	name := podspec.NameOf(pod)
	if older(pod, c.pods[name]) || older(pod, c.gone[name]) {
		return
	}
	c.pods[name] = pod
	delete(c.gone, name)
	c.seen(pod)
	c.wake(name)
}

// remove notes that a pod is not there any more, whose last state it has.
func (c *podCache) remove(pod *v1.Pod) {
	pod.ManagedFields = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(pod)
}

func (c *podCache) removeLocked(pod *v1.Pod) {
	name := podspec.NameOf(pod)
	if now := c.pods[name]; now != nil && now.UID != pod.UID {
		return // another one of the same name
	}
	c.gone[name] = pod
	delete(c.pods, name)
	c.wake(name)
}

// forget drops the last state of a pod.
func (c *podCache) forget(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.gone, name)
}

// replace has all pods of a namespace, or of all if it is "", as of a resource version.
func (c *podCache) replace(namespace, version string, pods []*v1.Pod) {
	there := map[types.NamespacedName]bool{}
	for _, pod := range pods {
		there[podspec.NameOf(pod)] = true
		c.put(pod)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, pod := range c.pods {
		if !there[name] && (namespace == "" || namespace == name.Namespace) && !after(pod.ResourceVersion, version) {
			c.removeLocked(pod)
		}
	}
}

// older reports whether a state of a pod was the case before another one.
func older(pod, than *v1.Pod) bool {
	return than != nil && after(than.ResourceVersion, pod.ResourceVersion)
}

// after reports whether a resource version is later than another one.
func after(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}

// wake tells everybody who waits for changes of the pod.
func (c *podCache) wake(name types.NamespacedName) {
	for _, ch := range c.changes[name] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// wakeAll tells everybody who waits for changes of any pod.
func (c *podCache) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.changes {
		c.wake(name)
	}
}

// subscribe returns a channel that gets a value when the pod has changed.
func (c *podCache) subscribe(name types.NamespacedName) (ch chan struct{}, cancel func()) {
	ch = make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes[name] = append(c.changes[name], ch)
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changes[name] = slices.DeleteFunc(c.changes[name], func(other chan struct{}) bool { return other == ch })
		close(ch)
	}
}
