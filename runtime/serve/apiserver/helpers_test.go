package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/serve/apiserver"
	"github.com/runonce/runonce/runtime/serve/kubelet"
	"github.com/runonce/runonce/runtime/serve/mirror"
	"github.com/runonce/runonce/runtime/serve/objects"
)

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

// machine is one whose pods are served. It is all that the server needs of it.
type machine struct {
	handler http.Handler
	store   atomic.Pointer[objects.Store]

	// What the test has happen; all may be nil.
	sync   func() error
	remove func(ctx context.Context, pod *v1.Pod, grace time.Duration) error
	debug  func(pod *v1.Pod, c v1.EphemeralContainer) error
	exec   func(ctx context.Context, s engine.Streams) (int32, error)
	dial   func(ctx context.Context, port int32) (net.Conn, error)
	follow func(ctx context.Context, to logs.Sinks) error
	log    string // the path of all logs
	used   func(pod *v1.Pod) (map[string]podusage.Sample, error)
	whole  func() (podusage.Sample, error)

	mu    sync.Mutex
	calls []string // of remove and debug
}

// begin is the version of a new store.
const begin = 1000

// newMachine returns a machine with a node and a namespace. change changes what is served.
func newMachine(change ...func(*apiserver.Options)) *machine {
	m := &machine{}
	m.store.Store(objects.New(begin))
	m.set(mirror.Nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "uid-node", Labels: map[string]string{"machine": "yes"}}})
	m.set(mirror.Namespaces, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid-default"}, Status: v1.NamespaceStatus{Phase: v1.NamespaceActive}})
	o := apiserver.Options{
		Mirror: m, Pods: m, Usage: m, Kubelet: kubelet.Handler(kubelet.Options{Node: "node", Pods: m, Runtime: m}),
		Version: "v1.37.0+runonce", User: "root", Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o)
	}
	m.handler = apiserver.Handler(o)
	return m
}

func (m *machine) set(resource string, all ...objects.Object) { m.store.Load().Set(resource, all...) }

// delete deletes a pod from the store.
func (m *machine) delete(namespace, name string) {
	m.store.Load().Delete(mirror.Pods, types.NamespacedName{Namespace: namespace, Name: name})
}

// version is that of the store.
func (m *machine) version() string { return fmt.Sprint(m.store.Load().Version()) }

// ProbeResults implements kubelet.Runtime.
func (*machine) ProbeResults(*v1.Pod) map[runtime.Probed]int { return nil }

// Store implements apiserver.Mirror.
func (m *machine) Store() *objects.Store { return m.store.Load() }

// Sync implements apiserver.Mirror.
func (m *machine) Sync(context.Context) error {
	if m.sync != nil {
		return m.sync()
	}
	return nil
}

func (m *machine) called(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
}

// taken returns the calls since the last time.
func (m *machine) taken() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := strings.Join(m.calls, ",")
	m.calls = nil
	return calls
}

// Remove implements apiserver.Pods.
func (m *machine) Remove(ctx context.Context, pod *v1.Pod, grace time.Duration) (err error) {
	m.called("remove %s/%s %s", pod.Namespace, pod.Name, grace)
	if m.remove != nil {
		err = m.remove(ctx, pod, grace)
	}
	if ctx.Err() != nil {
		m.called("cancelled")
	}
	return err
}

// Debug implements apiserver.Pods.
func (m *machine) Debug(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer) error {
	m.called("debug %s/%s %s", pod.Namespace, pod.Name, c.Name)
	if m.debug != nil {
		return m.debug(pod, c)
	}
	pod, _, _ = m.FindPod(ctx, pod.Namespace, pod.Name)
	pod = pod.DeepCopy()
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, c)
	m.set(mirror.Pods, pod)
	return nil
}

// Used implements apiserver.Usage, and kubelet.Runtime.
func (m *machine) Used(_ context.Context, pod *v1.Pod) (podusage.Sample, map[string]podusage.Sample, error) {
	if m.used == nil {
		return podusage.Sample{}, nil, errors.New("nothing is known")
	}
	all, err := m.used(pod)
	return podusage.Sample{}, all, err
}

// Machine implements apiserver.Usage.
func (m *machine) Machine() (podusage.Sample, error) {
	if m.whole == nil {
		return podusage.Sample{}, errors.New("nothing is known")
	}
	return m.whole()
}

// GetPods implements kubelet.Pods.
func (m *machine) GetPods(context.Context) (pods []*v1.Pod, err error) {
	all, _, err := m.store.Load().List(mirror.Pods, 0)
	for _, o := range all {
		if pod, ok := o.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods, err
}

// FindPod implements kubelet.Pods.
func (m *machine) FindPod(_ context.Context, namespace, name string) (*v1.Pod, bool, error) {
	o, _ := m.store.Load().Get(mirror.Pods, types.NamespacedName{Namespace: namespace, Name: name})
	pod, ok := o.(*v1.Pod)
	return pod, ok, nil
}

// Exec implements kubelet.Runtime.
func (m *machine) Exec(ctx context.Context, _ *v1.Pod, _ string, _ runtime.Command, s engine.Streams) (int32, error) {
	return m.exec(ctx, s)
}

// Attach implements kubelet.Runtime.
func (m *machine) Attach(ctx context.Context, _ *v1.Pod, _ string, s engine.Streams) (int32, error) {
	return m.exec(ctx, s)
}

// Dial implements kubelet.Runtime.
func (m *machine) Dial(ctx context.Context, _ *v1.Pod, port int32) (net.Conn, error) {
	return m.dial(ctx, port)
}

// Log implements kubelet.Runtime.
func (m *machine) Log(_ context.Context, _ *v1.Pod, container string, previous bool) (string, error) {
	if previous {
		return "", fmt.Errorf("previous terminated container %q not found", container)
	}
	return m.log, nil
}

// FollowLog implements kubelet.Runtime.
func (m *machine) FollowLog(ctx context.Context, _ *v1.Pod, _ runtime.FollowedLog, to logs.Sinks, _ logs.Options) error {
	return m.follow(ctx, to)
}

// pod returns a pod that runs, with a container main.
func pod(namespace, name string, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name)},
		Spec:       v1.PodSpec{NodeName: "node", RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "main", Image: "box"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// labelled sets a label.
func labelled(name, value string) func(*v1.Pod) {
	return func(pod *v1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, name, value) }
}

// answer is that to a request.
type answer struct {
	code   int
	header http.Header
	body   string
}

// ask returns the answer to a request, without a network. header has names and values in turn.
func (m *machine) ask(t testing.TB, method, target, body string, header ...string) answer {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // as the server does with the end of a request
	r := httptest.NewRequestWithContext(ctx, method, target, from)
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// get is ask for what there is.
func (m *machine) get(t testing.TB, target string, header ...string) answer {
	t.Helper()
	return m.ask(t, http.MethodGet, target, "", header...)
}

// decoded returns what an answer has in JSON.
func decoded[T any](t testing.TB, a answer) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%d %s: %v", a.code, a.body, err)
	}
	return v
}

// failed checks that an answer is a Status with the code and the message, and returns it.
func failed(t testing.TB, what string, a answer, code int, message string) metav1.Status {
	t.Helper()
	s := decoded[metav1.Status](t, a)
	if s.Kind != "Status" || s.APIVersion != "v1" || s.Status != metav1.StatusFailure || int(s.Code) != a.code || s.Reason == "" {
		t.Errorf("%s is no status of an error: %d %s", what, a.code, a.body)
	}
	want(t, what, fmt.Sprintf("%d %s", a.code, s.Message), fmt.Sprintf("%d %s", code, message))
	return s
}

// names returns the names of pods of a list.
func names(t testing.TB, a answer) string {
	t.Helper()
	if a.code != http.StatusOK {
		t.Fatalf("%d %s", a.code, a.body)
	}
	list := decoded[v1.PodList](t, a)
	all := make([]string, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	return strings.Join(all, ",")
}

// serve has the machine answer over TCP until the test ends.
func (m *machine) serve(t testing.TB) (*rest.Config, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(m.handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL, QPS: -1}, server
}

// client returns a client of the machine.
func (m *machine) client(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	config, _ := m.serve(t)
	return clientOf(t, config)
}

func clientOf(t testing.TB, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	return c
}
