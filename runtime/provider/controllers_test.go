package provider_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runtime/provider"
)

// controllers are virtual-kubelet's, which drive a provider on an API server in memory.
type controllers struct {
	client   kubernetes.Interface
	provider *provider.Provider
}

// startControllers starts them on the machine in memory, until the end of the test.
func startControllers(t *testing.T, n *fakeNode) controllers {
	t.Helper()
	c := controllers{client: fake.NewClientset()}
	all := informers.NewSharedInformerFactory(c.client, 0)
	objects := all.Core().V1()
	n.objects = provider.ClusterObjects(c.client, objects)
	c.provider = n.provider(t.Context(), t)
	pods, err := node.NewPodController(node.PodControllerConfig{
		PodClient: c.client.CoreV1(), EventRecorder: &record.FakeRecorder{}, Provider: c.provider, PodInformer: objects.Pods(),
		ConfigMapInformer: objects.ConfigMaps(), SecretInformer: objects.Secrets(), ServiceInformer: objects.Services(),
	})
	must(t, err)
	described, err := provider.NewNode(func() (*v1.Node, error) {
		return admit.FromNodeFile(&v1.Node{}, admit.NodeOptions{Name: nodeName}), nil
	}, provider.NodeOptions{Version: "v1.37.0"}, n.log)
	must(t, err)
	nodes, err := node.NewNodeController(described, described.Object(), c.client.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(c.client.CoordinationV1().Leases(v1.NamespaceNodeLease), node.DefaultLeaseDuration))
	must(t, err)
	all.Start(t.Context().Done())
	for _, run := range []func(context.Context) error{
		func(ctx context.Context) error { return pods.Run(ctx, 2) }, nodes.Run,
	} {
		go func() {
			if err := run(t.Context()); err != nil {
				t.Error(err)
			}
		}()
	}
	synctest.Wait()
	return c
}

// line describes a pod of the cluster.
func (c controllers) line(t *testing.T, name string) string {
	t.Helper()
	pod, err := c.client.CoreV1().Pods(v1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "deleted"
	}
	must(t, err)
	return line(pod)
}

// TestControllers: the pods of a cluster are created, updated and deleted.
func TestControllers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		c := startControllers(t, n)
		pods := c.client.CoreV1().Pods(v1.NamespaceDefault)
		web, err := pods.Create(t.Context(), newPod("web", v1.RestartPolicyAlways, "stay"), metav1.CreateOptions{})
		must(t, err)
		_, err = pods.Create(t.Context(), newPod("job", v1.RestartPolicyNever, "exit 3"), metav1.CreateOptions{})
		must(t, err)
		time.Sleep(time.Minute)
		want(t, "created", []string{c.line(t, "web"), c.line(t, "job")}, []string{"web Running running 0", "job Failed exit 3"})

		web, err = pods.Get(t.Context(), web.Name, metav1.GetOptions{})
		must(t, err)
		if len(web.Annotations) > 0 {
			t.Errorf("the cluster has got annotations: %v", web.Annotations)
		}
		web.Spec.Containers[0].Image = otherImage
		web, err = pods.Update(t.Context(), web, metav1.UpdateOptions{})
		must(t, err)
		time.Sleep(time.Minute)
		want(t, "updated", c.line(t, "web"), "web Running running 1")

		web, err = pods.Get(t.Context(), web.Name, metav1.GetOptions{})
		must(t, err)
		web.DeletionTimestamp, web.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now().Add(4 * time.Second)}, new(int64(4))
		_, err = pods.Update(t.Context(), web, metav1.UpdateOptions{})
		must(t, err)
		time.Sleep(3 * time.Second)
		want(t, "in its grace period", c.line(t, "web"), "web Running running 1")
		time.Sleep(2 * time.Second)
		want(t, "after it", c.line(t, "web"), "deleted")
		must(t, pods.Delete(t.Context(), "job", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		want(t, "left", len(n.sandboxes.Left()), 0)
	})
}

// TestNodeController: the node is registered, and its lease is renewed.
func TestNodeController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := startControllers(t, newNode(t))
		registered, err := c.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		must(t, err)
		want(t, "version", registered.Status.NodeInfo.KubeletVersion, "v1.37.0")
		time.Sleep(time.Hour)
		lease, err := c.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), nodeName, metav1.GetOptions{})
		must(t, err)
		if age := time.Since(lease.Spec.RenewTime.Time); age > node.DefaultLeaseDuration*time.Second {
			t.Errorf("the lease was renewed %s ago", age)
		}
		registered, err = c.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		must(t, err)
		if len(registered.Status.Conditions) == 0 || time.Since(registered.Status.Conditions[0].LastHeartbeatTime.Time) > 2*time.Minute {
			t.Errorf("conditions: %+v", registered.Status.Conditions)
		}
	})
}
