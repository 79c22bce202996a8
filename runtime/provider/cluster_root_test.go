package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/admit/nodeinfo"
	"github.com/runonce/runonce/hack/roottest"
	"github.com/runonce/runonce/hack/testcluster"
	"github.com/runonce/runonce/hack/testimages"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/provider"
	"github.com/runonce/runonce/runtime/record"
)

// patience bounds each wait. It is generous: a test that reaches it has failed.
const patience = 3 * time.Minute

// cluster is a cluster whose only node is this machine, by a provider.
type cluster struct {
	*testcluster.Cluster
	*controller
}

// TestCluster: a provider behind a real API server, with all of its admission plugins.
func TestCluster(t *testing.T) {
	roottest.Require(t)
	c := startCluster(t)
	t.Run("deployment", c.testDeployment)
	t.Run("streams", c.testStreams)
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
	client, err := newAPI(config)
	must(t, err)
	c := &cluster{control, &controller{client: client, t: t}}
	c.startNode(t)
	return c
}

// startNode makes this machine a node of the cluster.
func (c *cluster) startNode(t *testing.T) {
	t.Helper()
	dir := c.Dir
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	o := backend.Options{
		Options:  containerd.Options{Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Log: log},
		PodsRoot: filepath.Join(dir, "root"), LogDir: filepath.Join(dir, "log"), CgroupDriver: "cgroupfs", PodPidsLimit: -1,
	}
	o.Network.CNIConfDir = filepath.Join(dir, "net.d")
	engine, err := backend.Open(ctx, o)
	must(t, err)
	images := t.TempDir()
	_, err = testimages.Write(ctx, images, "box", "web")
	must(t, err)
	_, err = engine.Import(ctx, images)
	must(t, err)
	disk, err := nodeinfo.Statfs(dir)
	must(t, err)
	machine, err := admit.Detect(os.DirFS("/"), admit.DetectOptions{NodeOptions: admit.NodeOptions{Name: nodeName}, NodeFS: disk, ImageFS: disk})
	must(t, err)
	for i := range machine.Status.Conditions {
		machine.Status.Conditions[i].Status = v1.ConditionFalse // of a machine that others use, too
	}
	pods, err := engine.Pods(ctx, machine, runtime.Options{
		Objects: c.objects(ctx), Records: record.Open(o.Root, o.State), LogDir: o.LogDir, Log: log,
		Event: func(pod *v1.Pod, eventType, reason, message string) {
			go c.client.event(ctx, pod, eventType, reason, message)
		},
	})
	must(t, err)
	c.provider, err = provider.New(ctx, pods, nodeName, log)
	must(t, err)
	c.run(ctx, nodeName)
	must(t, c.register(ctx, provider.RegisteredNode(machine, provider.NodeOptions{Addresses: []string{"127.0.0.1"}, Version: "v1.37.0"})))
	t.Cleanup(func() {
		cancel()
		stop, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		left, err := pods.List(stop)
		for _, pod := range left {
			pod.Spec.TerminationGracePeriodSeconds = new(int64)
			if serr := pods.Stop(stop, pod); serr != nil {
				t.Error(serr)
			}
		}
		for _, err := range []error{err, engine.Cleanup(stop), engine.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func (c *cluster) objects(ctx context.Context) provider.Objects {
	return provider.Objects{
		ConfigMaps: func(namespace, name string) (*v1.ConfigMap, error) {
			return get[v1.ConfigMap](ctx, c.client, "configmaps", namespace, name)
		},
		Secrets: func(namespace, name string) (*v1.Secret, error) {
			return get[v1.Secret](ctx, c.client, "secrets", namespace, name)
		},
		Tokens: func(ctx context.Context, namespace, account string, r *authentication.TokenRequest) (*authentication.TokenRequest, error) {
			return c.client.createToken(ctx, namespace, account, r)
		},
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
	var list v1.PodList
	must(t, c.client.rest.Get().Namespace(v1.NamespaceDefault).Resource("pods").Param("labelSelector", "app="+app).Do(t.Context()).Into(&list))
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

// exec runs a command in a container named main.
func (c *cluster) exec(t *testing.T, pod string, a *terminal, command ...string) string {
	t.Helper()
	must(t, handlersOf(c.provider).exec(t.Context(), v1.NamespaceDefault, pod, "main", command, a))
	return a.out.String()
}

// testDeployment: pods of a deployment run with the default service account, whose token the API
// server accepts, and tell what happens to them.
func (c *cluster) testDeployment(t *testing.T) {
	c.post(t, "/apis/apps/v1/namespaces/default/deployments", strings.Replace(workload, "serviceName: %[2]s,", "", 1), "Deployment", "web", 2, 1, "sleep")
	pod := c.awaitReady(t, "web", 2)[0]
	if pod.Status.PodIP == "" || pod.Spec.ServiceAccountName != "default" {
		t.Errorf("address %q, account %q", pod.Status.PodIP, pod.Spec.ServiceAccountName)
	}
	token := c.exec(t, pod.Name, &terminal{}, "box", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	answer, err := c.Post(t.Context(), "/apis/authentication.k8s.io/v1/tokenreviews",
		fmt.Sprintf("{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {token: %q}}", strings.TrimSpace(token)))
	must(t, err)
	var review authentication.TokenReview
	must(t, json.Unmarshal([]byte(answer), &review))
	want(t, "user of the token", review.Status.User.Username, "system:serviceaccount:default:default")
	c.checkSecret(t, pod, strings.TrimSpace(token))
	ca := c.exec(t, pod.Name, &terminal{}, "box", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	if !strings.Contains(ca, "BEGIN CERTIFICATE") {
		t.Errorf("ca.crt: %q", ca)
	}
	await(t, "events", func() bool {
		var list v1.EventList
		err := c.client.rest.Get().Namespace(v1.NamespaceDefault).Resource("events").
			Param("fieldSelector", "involvedObject.name="+pod.Name+",reason=Started").Do(t.Context()).Into(&list)
		return err == nil && len(list.Items) == 1 && list.Items[0].InvolvedObject.UID == pod.UID
	})
	must(t, c.Delete(t.Context(), "/apis/apps/v1/namespaces/default/deployments/web"))
	await(t, "the end of the deployment", func() bool { return len(c.labelled(t, "web")) == 0 })
	await(t, "the end of its pods", func() bool {
		left, err := c.provider.GetPods(t.Context())
		return err == nil && len(left) == 0
	})
}

// checkSecret checks that the token of a pod is in memory and nowhere in its record.
func (c *cluster) checkSecret(t *testing.T, pod v1.Pod, token string) {
	t.Helper()
	dir := filepath.Join(c.Dir, "root", "pods", string(pod.UID))
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

// testStreams: logs, commands with input and with a terminal, and connections.
func (c *cluster) testStreams(t *testing.T) {
	c.post(t, "/api/v1/namespaces/default/pods", `{apiVersion: v1, kind: Pod, metadata: {name: streams, labels: {app: streams}}, spec: {
  terminationGracePeriodSeconds: 1, containers: [
    {name: main, image: "localhost/box:1", args: [stay], imagePullPolicy: IfNotPresent},
    {name: web, image: "localhost/web:1", imagePullPolicy: IfNotPresent}]}}`)
	c.awaitReady(t, "streams", 1)
	h := handlersOf(c.provider)
	r, err := h.logs(t.Context(), v1.NamespaceDefault, "streams", "main", containerLogOpts{Follow: true})
	must(t, err)
	line := make([]byte, 100)
	n, err := r.Read(line)
	must(t, err)
	want(t, "log", string(line[:n]), "deaf from now on\n")
	must(t, r.Close())

	want(t, "input", c.exec(t, "streams", &terminal{in: strings.NewReader("hello\n")}, "box", "listen"), "listening\nhello\nend\n")
	a := &terminal{tty: true, resize: make(chan termSize)}
	held, keep := io.Pipe()
	defer func() { _ = keep.Close() }()
	a.in = held
	go func() {
		for range 3 { // the third one is taken when the first one is set
			a.resize <- termSize{Width: 132, Height: 43}
		}
		if err := h.exec(t.Context(), v1.NamespaceDefault, "streams", "main", []string{"box", "write", "/sized", "yes"}, &terminal{}); err != nil {
			t.Error(err)
		}
	}()
	text := c.exec(t, "streams", a, "box", "do", "await /sized", "facts")
	var facts struct {
		Stdin   string
		TTYSize []int
	}
	if i := strings.IndexByte(text, '{'); i < 0 || json.NewDecoder(strings.NewReader(text[i:])).Decode(&facts) != nil {
		t.Fatalf("on a terminal: %q", text)
	}
	want(t, "terminal", fmt.Sprint(facts.Stdin, facts.TTYSize), "tty[43 132]")

	here, there := net.Pipe()
	forwarded := make(chan error, 1)
	go func() { forwarded <- h.forward(t.Context(), v1.NamespaceDefault, "streams", 8080, there) }()
	_, err = here.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	must(t, err)
	answer, err := io.ReadAll(here)
	must(t, err)
	if !bytes.HasPrefix(answer, []byte("HTTP/1.0 200 OK")) {
		t.Errorf("port: %q", answer)
	}
	must(t, <-forwarded)
	must(t, c.Delete(t.Context(), "/api/v1/namespaces/default/pods/streams"))
	await(t, "the end of the pod", func() bool { return c.uidOf(t.Context(), "streams") == "" })
}

// testStatefulSet: a pod that is deleted by force is followed by one of the same name.
func (c *cluster) testStatefulSet(t *testing.T) {
	c.post(t, "/apis/apps/v1/namespaces/default/statefulsets", workload, "StatefulSet", "db", 1, 3, "stay")
	for range 3 {
		old := c.awaitReady(t, "db", 1)[0]
		must(t, c.client.deletePod(t.Context(), old.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		await(t, "the next pod", func() bool {
			next := c.awaitReady(t, "db", 1)[0]
			known, err := c.provider.GetPod(t.Context(), v1.NamespaceDefault, next.Name)
			return next.UID != old.UID && err == nil && known.UID == next.UID
		})
	}
	must(t, c.Delete(t.Context(), "/apis/apps/v1/namespaces/default/statefulsets/db"))
	await(t, "the end of the set", func() bool {
		left, err := c.provider.GetPods(t.Context())
		return err == nil && len(left) == 0
	})
}

// testGracePeriods: a new pod does not wait for the grace periods of more pods than there are
// workers.
func (c *cluster) testGracePeriods(t *testing.T) {
	c.post(t, "/apis/apps/v1/namespaces/default/deployments", strings.Replace(workload, "serviceName: %[2]s,", "", 1), "Deployment", "slow", 3, 25, "stay")
	c.awaitReady(t, "slow", 3)
	must(t, c.Delete(t.Context(), "/apis/apps/v1/namespaces/default/deployments/slow"))
	dying := func() int {
		all := slices.DeleteFunc(c.labelled(t, "slow"), func(pod v1.Pod) bool { return pod.DeletionTimestamp == nil })
		return len(all)
	}
	await(t, "deletions", func() bool { return dying() == 3 })
	c.post(t, "/apis/apps/v1/namespaces/default/deployments", strings.Replace(workload, "serviceName: %[2]s,", "", 1), "Deployment", "fresh", 1, 1, "sleep")
	c.awaitReady(t, "fresh", 1)
	want(t, "pods in their grace period when the new one is ready", dying(), 3)
	must(t, c.Delete(t.Context(), "/apis/apps/v1/namespaces/default/deployments/fresh"))
	await(t, "the end of all", func() bool { return len(c.labelled(t, "slow"))+len(c.labelled(t, "fresh")) == 0 })
}
