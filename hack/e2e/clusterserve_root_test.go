package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/testcluster"
)

const clusterServed = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: localhost/box:1, args: [web, -addr, ":8080"]}
  - {name: busy, image: localhost/box:1, args: [do, echo begins, burn]}
`

// TestClusterServe: an API server that has the address of "serve" as that of a node reaches the pods as those of a
// kubelet, and metrics-server reads what they use.
func TestClusterServe(t *testing.T) {
	c := testcluster.Serve(t)
	b := newBox(t, "")
	k := b.serve(t, "serve", "--listen", "127.0.0.1:0", "--tls-client-ca", c.KubeletClients)
	b.up(t, directory(t, clusterServed), 0, "--until", "running")
	served, err := clientcmd.BuildConfigFromFlags("", k.config)
	if err != nil {
		t.Fatal(err)
	}
	if k.config, err = c.Kubeconfig(testcluster.Admin); err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", k.config)
	if err != nil {
		t.Fatal(err)
	}
	node := register(t, admin, served)
	t.Run("streams", func(t *testing.T) { k.streams(t) })
	t.Run("metrics", func(t *testing.T) { readMetrics(t, c, admin, node) })
}

// streams has a client reach the pod through the API server.
func (k kubectl) streams(t *testing.T) {
	t.Helper()
	k.check(t, []invocation{
		{args: "logs web -c busy", want: `^begins\n$`},
		{args: "logs web --all-containers --prefix --tail 1", want: `(?m)^\[pod/web/busy\] begins$`},
		{args: "exec web -c main -- box exit 7", code: 7, want: `exit code 7`},
		{args: "exec -i web -c main -- box listen", stdin: "in\n", want: `in\nend\n`},
	})
	k.forwards(t)
}

// register has the cluster know the node and the pod that are served, as their kubelet would, and returns the node's name.
func register(t *testing.T, admin, served *rest.Config) string {
	t.Helper()
	ours, theirs := kubernetes.NewForConfigOrDie(served).CoreV1(), kubernetes.NewForConfigOrDie(admin).CoreV1()
	nodes, err := ours.Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	node := &nodes.Items[0]
	port, err := strconv.Atoi(served.Host[strings.LastIndex(served.Host, ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	node.ObjectMeta = metav1.ObjectMeta{Name: node.Name}
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	if _, err = theirs.Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers change it, too
		now, err := theirs.Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
		if err == nil {
			now.Status = node.Status
			_, err = theirs.Nodes().UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := ours.Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName, pod.Spec.Priority = node.Name, "", nil
	bound, err := theirs.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err == nil {
		bound.Status = pod.Status
		_, err = theirs.Pods("default").UpdateStatus(t.Context(), bound, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return node.Name
}

// readMetrics has metrics-server read what the node and its pods use.
func readMetrics(t *testing.T, c *testcluster.Cluster, admin *rest.Config, node string) {
	t.Helper()
	port, err := testcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.Kubeconfig(testcluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := c.KubeletClient()
	p, err := daemon.Launch(t.Context(), filepath.Join(c.Dir, "metrics-server.log"), c.Program("metrics-server"),
		"--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
		"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port), "--cert-dir", filepath.Join(c.Dir, "metrics-server"),
		"--kubelet-insecure-tls", "--kubelet-client-certificate", cert, "--kubelet-client-key", key,
		"--kubelet-preferred-address-types", "InternalIP", "--kubelet-use-node-status-port", "--metric-resolution", "10s", "--kubelet-request-timeout", "5s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	direct := &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: admin.BearerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client, err := rest.HTTPClientFor(direct)
	if err != nil {
		t.Fatal(err)
	}
	var ofPod metricsv1beta1.PodMetrics
	var ofNode metricsv1beta1.NodeMetrics
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err = p.Await(ctx, func(ctx context.Context) error {
		const api = "/apis/metrics.k8s.io/v1beta1/"
		if err := fetchInto(ctx, client, direct.Host+api+"namespaces/default/pods/web", &ofPod); err != nil {
			return err
		}
		return fetchInto(ctx, client, direct.Host+api+"nodes/"+node, &ofNode)
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(c.Dir, "metrics-server.log"))
		t.Fatalf("%v\n%s", err, log)
	}
	used := map[string]v1.ResourceList{}
	for _, container := range ofPod.Containers {
		used[container.Name] = container.Usage
	}
	busy, idle := used["busy"], used["main"]
	if len(used) != 2 || busy.Cpu().MilliValue() < 100 || busy.Memory().Value() < 1<<20 || idle.Memory().Value() < 1<<20 {
		t.Errorf("the pod uses %v", used)
	}
	if ofNode.Usage.Cpu().MilliValue() < busy.Cpu().MilliValue()/2 || ofNode.Usage.Memory().Value() < 1<<20 {
		t.Errorf("the node uses %v", ofNode.Usage)
	}
}

// fetchInto decodes the answer to a request.
func fetchInto(ctx context.Context, client *http.Client, url string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
