package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/test/e2e"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testSuite: virtual-kubelet's own tests, all of them.
func (c *cluster) testSuite(t *testing.T) {
	c.addServer(t)
	e2e.NewEndToEndTestSuite(e2e.EndToEndTestSuiteConfig{
		Kubeconfig: c.kubeconfig, Namespace: v1.NamespaceDefault, NodeName: nodeName, WatchTimeout: patience,
		ShouldSkipTest: func(string) bool { return false },
	}).Run(t)
	await(t, "the end of all pods", func() bool { return len(c.running(t)) == 0 })
}

// addServer adds the pod of the node's name that the suite asks for metrics, at port 10250: virtual-kubelet is often
// run as one.
func (c *cluster) addServer(t *testing.T) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(c.o.ip, "10250"))
	if errors.Is(err, unix.EADDRINUSE) {
		t.Skip("a kubelet has port 10250 of all addresses")
	}
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go c.relay(context.WithoutCancel(t.Context()), l)

	pods := c.client.CoreV1().Pods(v1.NamespaceDefault)
	pod, err := pods.Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec:       v1.PodSpec{SchedulerName: "none", Containers: []v1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	pod.Status.PodIP, pod.Status.PodIPs = c.o.ip, []v1.PodIP{{IP: c.o.ip}}
	_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, c.Delete(context.WithoutCancel(t.Context()), "/api/v1/namespaces/default/pods/"+nodeName))
	})
}

// relay passes connections on to the port of the node.
func (c *cluster) relay(ctx context.Context, l net.Listener) {
	var dialer net.Dialer
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(c.o.address, strconv.Itoa(c.o.port)))
		if err != nil {
			_ = from.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				_ = way[0].Close()
			}()
		}
	}
}
