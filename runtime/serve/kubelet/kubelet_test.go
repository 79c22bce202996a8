package kubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/serve/kubelet"
	"github.com/runonce/runonce/runtime/volume"
)

const boxImage = "localhost/box:1"

// node is a machine in memory whose pods are served.
type node struct {
	*runtime.Pods
	engine *enginetest.Engine
	url    string
}

// GetPods implements kubelet.Pods.
func (n *node) GetPods(ctx context.Context) ([]*v1.Pod, error) { return n.List(ctx) }

// FindPod implements kubelet.Pods.
func (n *node) FindPod(ctx context.Context, namespace, name string) (*v1.Pod, bool, error) {
	all, err := n.List(ctx)
	i := slices.IndexFunc(all, func(pod *v1.Pod) bool { return pod.Namespace == namespace && pod.Name == name })
	if i < 0 {
		return nil, false, err
	}
	return all[i], true, nil
}

// serve starts a node. change, if it is not nil, changes what is served.
func serve(t testing.TB, change func(*kubelet.Options)) *node {
	t.Helper()
	root := t.TempDir()
	hosts := filepath.Join(root, "hosts")
	must(t, os.WriteFile(hosts, nil, 0o600))
	n := &node{engine: &enginetest.Engine{
		Program: (&enginetest.Box{}).Program,
		Store:   map[string]engine.Image{boxImage: {Ref: boxImage, ID: "sha256:1", Entrypoint: []string{"/bin/box"}, Cmd: []string{"sleep"}}},
	}}
	var err error
	n.Pods, err = runtime.New(t.Context(), runtime.Options{
		Engine: n.engine, Sandboxes: &enginetest.Sandboxes{}, Cgroups: &enginetest.Cgroups{Processors: 0.5, WorkingSet: 3 << 20},
		Volumes: &volume.Manager{Root: root, Mounter: enginetest.Mounts{}},
		Records: record.Open(root, root), LogDir: filepath.Join(root, "log"), Node: ocispec.Node{Name: "node"},
		Host: runtime.Host{Host: ocispec.Host{MinOOMScoreAdj: -1000}, HostsFile: hosts, ResolvConf: filepath.Join(root, "none")},
	})
	must(t, err)
	o := kubelet.Options{Node: "node", Started: time.Now(), Pods: n, Runtime: n}
	if change != nil {
		change(&o)
	}
	server := httptest.NewServer(kubelet.Handler(o))
	t.Cleanup(server.Close)
	n.url = server.URL
	return n
}

// start starts a pod with a container main that runs a command of the box.
func (n *node) start(t testing.TB, name, command string, change ...func(*v1.Pod)) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
			Name: "main", Image: boxImage, Args: strings.Fields(command), ImagePullPolicy: v1.PullIfNotPresent,
		}}},
	}
	for _, c := range change {
		c(pod)
	}
	must(t, n.Sync(t.Context(), pod))
	return pod
}

// end ends the container of a pod.
func (n *node) end(t testing.TB, pod *v1.Pod, code int32) {
	t.Helper()
	all, err := n.engine.Containers(t.Context(), string(pod.UID))
	must(t, err)
	n.engine.Kill(all[0].ID, code)
}

// get returns the answer to a request.
func (n *node) get(t testing.TB, path string) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+path, nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer func() { must(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestPods: what runs, and what there is.
func TestPods(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	if code, body := n.get(t, "/healthz"); code != http.StatusOK || body != "ok" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	list := func(path string) (names []string) {
		code, body := n.get(t, path)
		var list v1.PodList
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK || list.Kind != "PodList" || list.APIVersion != "v1" || list.Items == nil {
			t.Fatalf("%s: %d %s", path, code, body)
		}
		for i := range list.Items {
			names = append(names, podspec.FullName(&list.Items[i])+" "+string(list.Items[i].Status.Phase))
		}
		return names
	}
	want(t, "no pods", strings.Join(list("/pods"), ","), "")
	n.start(t, "web", "sleep")
	n.end(t, n.start(t, "job", "sleep"), 0)
	want(t, "all", strings.Join(list("/pods"), ","), "default/job Succeeded,default/web Running")
	want(t, "running", strings.Join(list("/runningpods/"), ","), "default/web Running")
}

// TestRefused: what is not there, or cannot be asked for.
func TestRefused(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	n.start(t, "web", "sleep")
	for path, expect := range map[string]struct {
		code int
		body string
	}{
		"/":                                       {404, "404 page not found"},
		"/pods/":                                  {404, "404 page not found"},
		"/containerLogs/default/none/main":        {404, `pod "default/none" does not exist`},
		"/containerLogs/other/web/main":           {404, `pod "other/web" does not exist`},
		"/containerLogs/default/web/none":         {404, `container "none" not found in pod "default/web"`},
		"/containerLogs/default/web/..":           {404, "404 page not found"},
		"/containerLogs/default/web/%2e%2e%2fx":   {404, `container "../x" not found in pod "default/web"`},
		"/exec/default/none/main?command=x":       {404, `pod "default/none" does not exist`},
		"/exec/default/web/none?command=x":        {404, `container "none" not found in pod "default/web"`},
		"/exec/default/web/uid-x/main?command=x":  {404, `pod "default/web" does not exist`},
		"/exec/default/web/main?output=1":         {400, `you must specify the command to run in container "main"`},
		"/exec/default/web/main?command=x":        {400, "you must specify at least 1 of stdin, stdout, stderr"},
		"/attach/default/web/main":                {400, "you must specify at least 1 of stdin, stdout, stderr"},
		"/attach/default/none/main?output=1":      {404, `pod "default/none" does not exist`},
		"/portForward/default/none":               {404, `pod "default/none" does not exist`},
		"/exec/default/web/main?command=x&tty=1":  {400, "you must specify at least 1 of stdin, stdout, stderr"},
		"/containerLogs/default/web/main/further": {404, "404 page not found"},
	} {
		code, body := n.get(t, path)
		want(t, path, code, expect.code)
		want(t, path, strings.TrimSuffix(body, "\n"), expect.body)
	}
	// Without an upgrade there are no streams.
	for _, path := range []string{"/exec/default/web/main?command=x&output=1", "/attach/default/web/main?output=1", "/portForward/default/web"} {
		if code, body := n.get(t, path); code != http.StatusBadRequest && code != http.StatusForbidden {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, n.url+"/pods", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	must(t, resp.Body.Close())
	want(t, "DELETE", resp.StatusCode, http.StatusMethodNotAllowed)
}

// TestStats: what the running containers have used, for the API server and for metrics-server.
func TestStats(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	n.start(t, "web", "sleep", func(pod *v1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, pod.Spec.Containers[0])
		pod.Spec.Containers[1].Name = "side"
	})
	n.end(t, n.start(t, "job", "sleep"), 0)
	code, body := n.get(t, "/stats/summary")
	var summary struct {
		Node struct{ NodeName string }
		Pods []struct {
			PodRef     struct{ Name, Namespace, UID string }
			Memory     struct{ WorkingSetBytes int64 }
			Containers []struct {
				Name   string
				Memory struct{ WorkingSetBytes int64 }
			}
		}
	}
	must(t, json.Unmarshal([]byte(body), &summary))
	if code != http.StatusOK || summary.Node.NodeName != "node" || len(summary.Pods) != 1 || len(summary.Pods[0].Containers) != 2 {
		t.Fatalf("%d %s", code, body)
	}
	pod := summary.Pods[0]
	want(t, "pod", pod.PodRef.Name+" "+pod.PodRef.Namespace+" "+pod.PodRef.UID, "web default uid-web")
	want(t, "memory of the pod", pod.Memory.WorkingSetBytes, 6<<20)
	want(t, "memory of a container", pod.Containers[1].Memory.WorkingSetBytes, 3<<20)

	_, body = n.get(t, "/metrics/resource")
	var lines []string
	for line := range strings.Lines(body) {
		// Neither the times nor what changes with them, nor the machine.
		if line = strings.Join(strings.Fields(line)[:min(4, len(strings.Fields(line)))], " "); !strings.Contains(line, "cpu_usage") && !strings.Contains(line, "node_") && !strings.Contains(line, "start_time") {
			lines = append(lines, strings.Join(strings.Fields(line)[:len(strings.Fields(line))-min(1, strings.Count(line, "_bytes{"))], " "))
		}
	}
	want(t, "metrics", strings.Join(lines, "\n"), `# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="main",pod="web",namespace="default"} 3.145728e+06
container_memory_working_set_bytes{container="side",pod="web",namespace="default"} 3.145728e+06
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="default",pod="web"} 6.291456e+06
# TYPE resource_scrape_error gauge
resource_scrape_error 0`)
	for _, name := range []string{"node_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total", "container_cpu_usage_seconds_total", "container_start_time_seconds"} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("without %s: %s", name, body)
		}
	}
}

// TestMetrics: the series of a kubelet, as Prometheus wants them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	n.start(t, "web", "sleep")
	n.end(t, n.start(t, "job", "sleep"), 0)
	_, body := n.get(t, "/metrics")
	for _, line := range []string{
		`kubelet_node_name{node="node"} 1`, "kubelet_running_pods 1",
		`kubelet_running_containers{container_state="exited"} 1`, `kubelet_running_containers{container_state="running"} 1`,
		"# TYPE process_cpu_seconds_total counter",
	} {
		if !strings.Contains("\n"+body, "\n"+line+"\n") {
			t.Errorf("without %q:\n%s", line, body)
		}
	}
	for _, path := range []string{"/metrics", "/metrics/probes", "/metrics/resource"} {
		_, body := n.get(t, path)
		problems, err := promlint.New(strings.NewReader(body)).Lint()
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, p := range problems {
			if p.Text != "no help text" { // as in a kubelet
				t.Errorf("%s: %s: %s", path, p.Metric, p.Text)
			}
		}
	}
	broken := serve(t, func(o *kubelet.Options) { o.Pods = noPods{} })
	if code, body := broken.get(t, "/metrics"); code != http.StatusInternalServerError || !strings.Contains(body, "no engine") {
		t.Errorf("without the engine: %d %s", code, body)
	}
}

// TestProbeMetrics: the results of probes are counted, and gone with the pod.
func TestProbeMetrics(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	pod := n.start(t, "web", "sleep", func(pod *v1.Pod) {
		probe := func(args ...string) *v1.Probe {
			return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: append([]string{"/bin/box"}, args...)}}, FailureThreshold: 1000}
		}
		c := &pod.Spec.Containers[0]
		c.ReadinessProbe, c.LivenessProbe = probe("echo"), probe("exit", "1")
	})
	series := func(kind, result string) string {
		return fmt.Sprintf(`prober_probe_total{container="main",namespace="default",pod="web",pod_uid="uid-web",probe_type="%s",result="%s"} 1`, kind, result)
	}
	body := ""
	counted := func() bool {
		_, body = n.get(t, "/metrics/probes")
		return strings.Contains(body, series("Readiness", "successful")) && strings.Contains(body, series("Liveness", "failed"))
	}
	for deadline := time.Now().Add(time.Minute); !counted(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(body)
		}
	}
	must(t, n.Stop(t.Context(), pod))
	if _, body := n.get(t, "/metrics/probes"); strings.Contains(body, "prober_probe_total{") {
		t.Error(body)
	}
}

// TestConfiguration: it says what is known, in the form of a kubelet.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	n := serve(t, func(o *kubelet.Options) { o.MaxPods = 110 })
	code, body := n.get(t, "/configz")
	if code != http.StatusOK || !strings.Contains(body, `"kind":"KubeletConfiguration"`) || !strings.Contains(body, `"maxPods":110`) {
		t.Errorf("%d %s", code, body)
	}
}

// noPods has lost its engine.
type noPods struct{}

func (noPods) GetPods(context.Context) ([]*v1.Pod, error) { return nil, errNoEngine }
func (noPods) FindPod(context.Context, string, string) (*v1.Pod, bool, error) {
	return nil, false, errNoEngine
}

var errNoEngine = errors.New("no engine")

// TestNoEngine: that the pods are not known is not said as that there are none.
func TestNoEngine(t *testing.T) {
	t.Parallel()
	n := serve(t, func(o *kubelet.Options) { o.Pods = noPods{} })
	for _, path := range []string{"/pods", "/runningpods/", "/containerLogs/default/web/main", "/exec/default/web/main?command=x&output=1", "/portForward/default/web", "/stats/summary", "/metrics/resource"} {
		code, body := n.get(t, path)
		want(t, path, fmt.Sprintf("%d %s", code, body), "500 no engine\n")
	}
}
