package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testcluster"
	"github.com/runonce/runonce/internal/testing/testimages"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/provider"
	"github.com/runonce/runonce/runtime/record"
)

const (
	// patience bounds each wait. It is generous: a test that reaches it has failed.
	patience = 3 * time.Minute
	// nodeName is the node's name in the cluster.
	nodeName = "node"
)

// cluster is a cluster whose only node is this machine.
type cluster struct {
	*testcluster.Cluster
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
	o          options
}

// TestCluster: the program with a real API server, with all of its admission plugins.
func TestCluster(t *testing.T) {
	roottest.Require(t)
	c := startCluster(t)
	t.Run("deployment", c.testDeployment)
	t.Run("streams", c.testStreams)
	t.Run("suite", c.testSuite)
	t.Run("stateful set", c.testStatefulSet)
	t.Run("grace periods", c.testGracePeriods)
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	control := testcluster.Serve(t)
	path, err := control.Kubeconfig(testcluster.Admin)
	must(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must(t, err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	c := &cluster{Cluster: control, kubeconfig: path, config: config, client: client}
	c.startNode(t)
	await(t, "the service account", func() bool {
		_, err := client.CoreV1().ServiceAccounts(v1.NamespaceDefault).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	return c
}

// startNode makes this machine a node of the cluster.
func (c *cluster) startNode(t *testing.T) {
	t.Helper()
	port, err := testcluster.FreePort()
	must(t, err)
	address := addLink(t, port)
	c.o, err = parse([]string{
		"-kubeconfig", c.kubeconfig, "-node-name", nodeName, "-node-ip", address, "-address", address, "-port", strconv.Itoa(port),
		"-authorization-mode", alwaysAllow, // the API server of the tests has no rights as a client
		"-root", filepath.Join(c.Dir, "root"), "-state", filepath.Join(c.Dir, "state"), "-log-dir", filepath.Join(c.Dir, "log"),
		"-cni-conf-dir", filepath.Join(c.Dir, "net.d"), "-images-dir", writeImages(t),
	})
	must(t, err)
	c.o.detect = func(o options) (*v1.Node, error) {
		n, err := detect(o)
		if err == nil {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = v1.ConditionFalse // of a machine that others use, too
			}
		}
		return n, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, c.o, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, c.removeAll()); err != nil {
			t.Error(err)
		}
	})
	await(t, "the node", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the node has ended: %v", err)
		default:
		}
		n, err := c.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
		})
	})
}

// writeImages writes the images of the tests, and those that virtual-kubelet's suite names.
func writeImages(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	_, err := testimages.Write(t.Context(), dir, "box", "web")
	must(t, err)
	root, err := testimages.Root()
	must(t, err)
	all, err := testimages.List(root)
	must(t, err)
	box := all[slices.IndexFunc(all, func(i testimages.Image) bool { return i.Name == "box" })]
	program, err := testimages.Program(t.Context(), root, box.Program)
	must(t, err)
	for _, name := range []string{"foo", "bar", "baz"} {
		box.Ref = "docker.io/library/" + name + ":latest"
		f, err := os.Create(filepath.Join(dir, name+".tar"))
		must(t, err)
		must(t, errors.Join(ociimage.Build(f, box.Contents(program)), f.Close()))
	}
	return dir
}

// addLink adds a link to the machine until the end of the test, and returns its address: an API server asks no nodes
// and pods on loopback. The number keeps two tests apart.
func addLink(t *testing.T, number int) string {
	t.Helper()
	address := net.IPv4(10, 234, byte(number>>8), byte(number))
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "rv" + strconv.Itoa(number)
	link := &netlink.Bridge{LinkAttrs: attributes}
	must(t, netlink.LinkAdd(link))
	t.Cleanup(func() { must(t, netlink.LinkDel(link)) })
	must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(address)}))
	must(t, netlink.LinkSetUp(link))
	return address.String()
}

// removeAll removes what the node has left, which has ended.
func (c *cluster) removeAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	engine, err := backend.Open(ctx, c.o.backend)
	if err != nil {
		return err
	}
	pods, err := engine.Pods(ctx, &v1.Node{}, runtime.Options{
		Records: record.Open(c.o.backend.Root, c.o.backend.State), LogDir: c.o.backend.LogDir, Objects: &provider.Objects{},
	})
	var left []*v1.Pod
	if err == nil {
		left, err = pods.List(ctx)
	}
	for _, pod := range left {
		pod.Spec.TerminationGracePeriodSeconds = new(int64)
		err = errors.Join(err, pods.Stop(ctx, pod))
	}
	return errors.Join(err, engine.Cleanup(ctx), engine.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// labelled returns the pods with a label app.
func (c *cluster) labelled(t *testing.T, app string) []v1.Pod {
	t.Helper()
	list, err := c.client.CoreV1().Pods(v1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	must(t, err)
	return list.Items
}

// running returns the pods that run on the node, as it says itself.
func (c *cluster) running(t *testing.T) []v1.Pod {
	t.Helper()
	var list v1.PodList
	must(t, c.client.CoreV1().RESTClient().Get().Resource("nodes").Name(nodeName).SubResource("proxy").Suffix("runningpods/").Do(t.Context()).Into(&list))
	return list.Items
}

func ready(pod v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// awaitReady waits for so many ready pods, which it returns.
func (c *cluster) awaitReady(t *testing.T, app string, n int) (all []v1.Pod) {
	t.Helper()
	await(t, "pods of "+app, func() bool {
		all = slices.DeleteFunc(c.labelled(t, app), func(pod v1.Pod) bool { return !ready(pod) || pod.DeletionTimestamp != nil })
		return len(all) == n
	})
	return all
}

// post posts an object, in YAML.
func (c *cluster) post(t *testing.T, path, object string, args ...any) {
	t.Helper()
	_, err := c.Post(t.Context(), path, fmt.Sprintf(object, args...))
	must(t, err)
}

const workload = `{apiVersion: apps/v1, kind: %s, metadata: {name: %[2]s}, spec: {replicas: %[3]d, serviceName: %[2]s,
  selector: {matchLabels: {app: %[2]s}}, template: {metadata: {labels: {app: %[2]s}}, spec: {terminationGracePeriodSeconds: %[4]d,
  containers: [{name: main, image: "localhost/box:1", args: [%[5]s], imagePullPolicy: IfNotPresent}]}}}}`

// testDeployment: pods of a deployment run with the default service account, whose token the API
// server accepts, and tell what happens to them.
func (c *cluster) testDeployment(t *testing.T) {
	c.post(t, "/apis/apps/v1/namespaces/default/deployments", strings.Replace(workload, "serviceName: %[2]s,", "", 1), "Deployment", "web", 2, 1, "sleep")
	pod := c.awaitReady(t, "web", 2)[0]
	if pod.Status.PodIP == "" || pod.Spec.ServiceAccountName != "default" {
		t.Errorf("address %q, account %q", pod.Status.PodIP, pod.Spec.ServiceAccountName)
	}
	token := strings.TrimSpace(c.exec(t, pod.Name, nil, "box", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"))
	review, err := c.client.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	must(t, err)
	want(t, "user of the token", review.Status.User.Username, "system:serviceaccount:default:default")
	c.checkSecret(t, pod, token)
	ca := c.exec(t, pod.Name, nil, "box", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	if !strings.Contains(ca, "BEGIN CERTIFICATE") {
		t.Errorf("ca.crt: %q", ca)
	}
	await(t, "events", func() bool {
		list, err := c.client.CoreV1().Events(v1.NamespaceDefault).List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + pod.Name + ",reason=Started",
		})
		return err == nil && len(list.Items) == 1 && list.Items[0].InvolvedObject.UID == pod.UID
	})
	must(t, c.Delete(t.Context(), "/apis/apps/v1/namespaces/default/deployments/web"))
	await(t, "the end of the deployment", func() bool { return len(c.labelled(t, "web")) == 0 })
	await(t, "the end of its pods", func() bool { return len(c.running(t)) == 0 })
}

// checkSecret checks that the token of a pod is in memory and nowhere in its record.
func (c *cluster) checkSecret(t *testing.T, pod v1.Pod, token string) {
	t.Helper()
	dir := filepath.Join(c.o.backend.Root, "pods", string(pod.UID))
	volumes, err := filepath.Glob(filepath.Join(dir, "volumes", "kubernetes.io~projected", "kube-api-access-*"))
	if err != nil || len(volumes) != 1 {
		t.Fatalf("volumes %q, %v", volumes, err)
	}
	var in unix.Statfs_t
	must(t, unix.Statfs(volumes[0], &in))
	want(t, "file system", in.Type, int64(unix.TMPFS_MAGIC))
	text, err := os.ReadFile(filepath.Join(dir, "pod.json"))
	must(t, err)
	if bytes.Contains(text, []byte(token)) {
		t.Error("the token is in the record")
	}
}

// testStreams: logs, commands with input and with a terminal, and connections, all by way of the API
// server.
func (c *cluster) testStreams(t *testing.T) {
	c.post(t, "/api/v1/namespaces/default/pods", `{apiVersion: v1, kind: Pod, metadata: {name: streams, labels: {app: streams}}, spec: {
  terminationGracePeriodSeconds: 1, containers: [
    {name: main, image: "localhost/box:1", args: [stay], imagePullPolicy: IfNotPresent},
    {name: web, image: "localhost/web:1", imagePullPolicy: IfNotPresent}]}}`)
	c.awaitReady(t, "streams", 1)
	r, err := c.client.CoreV1().Pods(v1.NamespaceDefault).GetLogs("streams", &v1.PodLogOptions{Container: "main", Follow: true}).Stream(t.Context())
	must(t, err)
	line := make([]byte, 100)
	n, err := r.Read(line)
	must(t, err)
	want(t, "log", string(line[:n]), "deaf from now on\n")
	must(t, r.Close())

	want(t, "input", c.exec(t, "streams", strings.NewReader("hello\n"), "box", "listen"), "listening\nhello\nend\n")
	var exit interface{ ExitStatus() int }
	if err := c.stream(t, "streams", []string{"box", "exit", "7"}, streamsOf(nil, io.Discard)); !errors.As(err, &exit) || exit.ExitStatus() != 7 {
		t.Errorf("exit code: %v", err)
	}
	c.testTerminal(t)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.forward(t, "streams", 8080), nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	must(t, resp.Body.Close())
	want(t, "answer of the port", resp.Status, "200 OK")
	must(t, c.Delete(t.Context(), "/api/v1/namespaces/default/pods/streams"))
	await(t, "the end of the pod", func() bool { return len(c.labelled(t, "streams")) == 0 })
}

// testTerminal: a command knows the size of the terminal. Nobody says when it has got it, so that it may take several tries.
func (c *cluster) testTerminal(t *testing.T) {
	tries := 0
	await(t, "the size of the terminal", func() bool {
		tries++
		mark := fmt.Sprintf("/sized%d", tries)
		go func() { c.exec(t, "streams", nil, "box", "write", mark, "yes") }()
		held, keep := io.Pipe()
		defer func() { _ = keep.Close() }()
		var out bytes.Buffer
		o := streamsOf(held, &out)
		o.Tty, o.TerminalSizeQueue = true, &sizes{width: 132, height: 43}
		must(t, c.stream(t, "streams", []string{"box", "do", "await " + mark, "facts"}, o))
		var facts struct {
			Stdin   string
			TTYSize []int
		}
		text := out.String()
		if i := strings.IndexByte(text, '{'); i < 0 || json.NewDecoder(strings.NewReader(text[i:])).Decode(&facts) != nil {
			t.Fatalf("on a terminal: %q", text)
		}
		return fmt.Sprint(facts.Stdin, facts.TTYSize) == "tty[43 132]"
	})
}

// testStatefulSet: a pod that is deleted by force is followed by one of the same name.
func (c *cluster) testStatefulSet(t *testing.T) {
	c.post(t, "/apis/apps/v1/namespaces/default/statefulsets", workload, "StatefulSet", "db", 1, 3, "stay")
	for range 3 {
		old := c.awaitReady(t, "db", 1)[0]
		must(t, c.client.CoreV1().Pods(v1.NamespaceDefault).Delete(t.Context(), old.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		await(t, "the next pod", func() bool {
			next := c.awaitReady(t, "db", 1)[0]
			return next.UID != old.UID && slices.ContainsFunc(c.running(t), func(pod v1.Pod) bool { return pod.UID == next.UID })
		})
	}
	must(t, c.Delete(t.Context(), "/apis/apps/v1/namespaces/default/statefulsets/db"))
	await(t, "the end of the set", func() bool { return len(c.running(t)) == 0 })
}

// testGracePeriods: a new pod does not wait for the grace periods of more pods than there are
// workers.
func (c *cluster) testGracePeriods(t *testing.T) {
	deployment := strings.Replace(workload, "serviceName: %[2]s,", "", 1)
	c.post(t, "/apis/apps/v1/namespaces/default/deployments", deployment, "Deployment", "slow", workers+1, 25, "stay")
	c.awaitReady(t, "slow", workers+1)
	must(t, c.Delete(t.Context(), "/apis/apps/v1/namespaces/default/deployments/slow"))
	dying := func() int {
		all := slices.DeleteFunc(c.labelled(t, "slow"), func(pod v1.Pod) bool { return pod.DeletionTimestamp == nil })
		return len(all)
	}
	await(t, "deletions", func() bool { return dying() == workers+1 })
	c.post(t, "/apis/apps/v1/namespaces/default/deployments", deployment, "Deployment", "fresh", 1, 1, "sleep")
	c.awaitReady(t, "fresh", 1)
	want(t, "pods in their grace period when the new one is ready", dying(), workers+1)
	must(t, c.Delete(t.Context(), "/apis/apps/v1/namespaces/default/deployments/fresh"))
	// The cluster forgets a pod at the end of its grace period, whatever is left of it.
	await(t, "the end of all", func() bool { return len(c.labelled(t, "slow"))+len(c.labelled(t, "fresh"))+len(c.running(t)) == 0 })
}
