package provider_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/runonce/runonce/runtime/provider"
)

// controller drives a provider as virtual-kubelet's PodController does (node/pod.go,
// node/podcontroller.go), with two workers.
type controller struct {
	client   api
	provider *provider.Provider
	pods     cache.Store
	queue    workqueue.TypedRateLimitingInterface[string]
	t        *testing.T
}

// run starts the controller, which ends with ctx.
func (c *controller) run(ctx context.Context, nodeName string) {
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			c.queue.Add(key)
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.client.rest, "pods", "", fields.OneTermEqualSelector("spec.nodeName", nodeName)),
		ObjectType:    &v1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: enqueue, UpdateFunc: func(_, now any) { enqueue(now) }, DeleteFunc: enqueue,
		},
	})
	c.pods = store
	c.provider.NotifyPods(ctx, func(pod *v1.Pod) { c.setStatus(ctx, pod) })
	go informer.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	context.AfterFunc(ctx, c.queue.ShutDown)
	for range 2 {
		go func() {
			for {
				key, stopped := c.queue.Get()
				if stopped {
					return
				}
				if err := c.sync(ctx, key); err != nil && ctx.Err() == nil {
					c.t.Logf("syncing %s: %v", key, err)
					c.queue.AddRateLimited(key)
				} else {
					c.queue.Forget(key)
				}
				c.queue.Done(key)
			}
		}()
	}
}

func isNotFound(err error) bool {
	var e interface{ NotFound() bool }
	return errors.As(err, &e) && e.NotFound()
}

// sync is syncPodFromKubernetesHandler.
func (c *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	found, exists, err := c.pods.GetByKey(key)
	if err != nil {
		return err
	}
	known, err := c.provider.GetPod(ctx, namespace, name)
	if err != nil && !isNotFound(err) {
		return err
	}
	if !exists {
		if known == nil {
			return nil
		}
		if err := c.provider.DeletePod(ctx, known); !isNotFound(err) {
			return err
		}
		return nil
	}
	pod, _ := found.(*v1.Pod)
	switch {
	case pod.DeletionTimestamp != nil && !running(&pod.Status):
		return c.forceDelete(ctx, pod)
	case pod.DeletionTimestamp != nil:
		if err := c.provider.DeletePod(ctx, pod.DeepCopy()); !isNotFound(err) {
			return err
		}
		return nil
	case pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded:
		return nil
	case known == nil:
		return c.provider.CreatePod(ctx, pod.DeepCopy())
	case !equal(known, pod):
		return c.provider.UpdatePod(ctx, pod.DeepCopy())
	}
	return nil
}

// equal is podsEqual.
func equal(a, b *v1.Pod) bool {
	return reflect.DeepEqual(a.Spec.Containers, b.Spec.Containers) && reflect.DeepEqual(a.Labels, b.Labels) && reflect.DeepEqual(a.Annotations, b.Annotations)
}

// running is virtual-kubelet's: a container neither waits nor has ended.
func running(st *v1.PodStatus) bool {
	for _, cs := range st.ContainerStatuses {
		if cs.State.Terminated == nil && cs.State.Waiting == nil {
			return true
		}
	}
	return false
}

func (c *controller) forceDelete(ctx context.Context, pod *v1.Pod) error {
	zero, uid := int64(0), pod.UID
	err := c.client.deletePod(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// setStatus is updatePodStatus.
func (c *controller) setStatus(ctx context.Context, pod *v1.Pod) {
	pod = pod.DeepCopy()
	pod.ResourceVersion = "0"
	err := c.client.updateStatus(ctx, "pods", pod)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		c.t.Logf("status of %s: %v", pod.Name, err)
	}
}

// register registers the node, and keeps it ready until ctx is done.
func (c *controller) register(ctx context.Context, n *v1.Node) error {
	if err := c.client.rest.Post().Resource("nodes").Body(n).Do(ctx).Error(); err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			now := metav1.Now()
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].LastHeartbeatTime = now
			}
			if known, err := get[v1.Node](ctx, c.client, "nodes", "", n.Name); err == nil {
				known.Status = n.Status
				_ = c.client.updateStatus(ctx, "nodes", known) // the next try is soon
			}
			select {
			case <-time.After(5 * time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

// uidOf is the UID of a pod in the cluster, empty if it does not exist.
func (c *controller) uidOf(ctx context.Context, name string) types.UID {
	pod, err := get[v1.Pod](ctx, c.client, "pods", v1.NamespaceDefault, name)
	if err != nil {
		return ""
	}
	return pod.UID
}
