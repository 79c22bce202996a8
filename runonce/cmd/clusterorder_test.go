package cmd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// smallCluster is an API server that has pods, which its one node runs: what is created runs at once, and is ready
// when somebody has looked at its status once more.
type smallCluster struct {
	mu      sync.Mutex
	version int
	pods    []*v1.Pod
	changed chan struct{} // closed and replaced at each change
	log     []string      // "create web", "ready web", "delete web"
}

func (s *smallCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	defer s.mu.Unlock()
	name, ofPod := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/")
	switch {
	case r.URL.Path == "/version":
		_, _ = fmt.Fprint(w, "{}")
	case r.URL.Path == "/api/v1/nodes":
		_, _ = fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"9","memory":"9Gi","pods":"9"}}}]}`)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods"):
		pod, err := sentPod(r)
		if err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		if !r.URL.Query().Has("dryRun") {
			s.create(pod)
		}
		_ = json.NewEncoder(w).Encode(pod)
	case ofPod && r.Method == http.MethodDelete:
		s.remove(name)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case ofPod && slices.ContainsFunc(s.pods, func(pod *v1.Pod) bool { return pod.Name == name }):
		at := slices.IndexFunc(s.pods, func(pod *v1.Pod) bool { return pod.Name == name })
		_ = json.NewEncoder(w).Encode(s.pods[at])
	case ofPod:
		refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name))
	case strings.HasSuffix(r.URL.Path, "/pods") && r.URL.Query().Has("watch"):
		s.watch(w, r)
	case strings.HasSuffix(r.URL.Path, "/pods"):
		list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.version)}}
		for _, pod := range s.pods {
			list.Items = append(list.Items, *pod)
		}
		_ = json.NewEncoder(w).Encode(list)
	case r.URL.Path == "/api/v1/namespaces/default":
		_, _ = fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}`)
	default:
		_, _ = fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

// sentPod returns the pod of a request, which is in Kubernetes' protobuf format: "k8s\0" and an envelope.
func sentPod(r *http.Request) (*v1.Pod, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	envelope, pod := runtime.Unknown{}, &v1.Pod{}
	if err := envelope.Unmarshal(body[min(4, len(body)):]); err != nil {
		return nil, err
	}
	return pod, pod.Unmarshal(envelope.Raw)
}

// change gives the pod another version and wakes the watchers. The lock is held.
func (s *smallCluster) change(pod *v1.Pod, what string) {
	s.version++
	pod.ResourceVersion = fmt.Sprint(s.version)
	s.log = append(s.log, what+" "+pod.Name)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *smallCluster) create(pod *v1.Pod) {
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.UID, pod.Spec.NodeName = types.UID("uid-"+pod.Name), "n"
	pod.Status = v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
		Name: "main", ContainerID: "c://" + pod.Name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}}
	s.pods = append(s.pods, pod)
	s.change(pod, "create")
}

// makeReady makes the first pod ready that is not. The lock is held.
func (s *smallCluster) makeReady() {
	for i, pod := range s.pods {
		if pod.Status.ContainerStatuses[0].Ready {
			continue
		}
		next := pod.DeepCopy()
		next.Status.ContainerStatuses[0].Ready = true
		next.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		s.pods[i] = next
		s.change(next, "ready")
		return
	}
}

func (s *smallCluster) remove(name string) {
	for i, pod := range s.pods {
		if pod.Name == name {
			s.pods = slices.Delete(s.pods, i, i+1)
			s.change(pod, "delete")
			return
		}
	}
}

// watch sends the pods whenever they have changed, and lets one after the other become ready.
func (s *smallCluster) watch(w http.ResponseWriter, r *http.Request) {
	events := json.NewEncoder(w)
	sent := map[string]*v1.Pod{}
	end := v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	for first := true; r.Context().Err() == nil; first = false {
		now := map[string]*v1.Pod{}
		for _, pod := range s.pods {
			now[pod.Name] = pod
			if was := sent[pod.Name]; was == nil {
				_ = events.Encode(map[string]any{"type": "ADDED", "object": pod})
			} else if was.ResourceVersion != pod.ResourceVersion {
				_ = events.Encode(map[string]any{"type": "MODIFIED", "object": pod})
			}
		}
		for name, pod := range sent {
			if now[name] == nil {
				_ = events.Encode(map[string]any{"type": "DELETED", "object": pod})
			}
		}
		if sent = now; first {
			_ = events.Encode(map[string]any{"type": "BOOKMARK", "object": end})
		}
		_ = http.NewResponseController(w).Flush()
		changed := s.changed
		if s.makeReady(); changed != s.changed {
			continue
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		s.mu.Lock()
	}
}

// TestClusterOrder: on a cluster, a pod is created when those on which it depends are ready, and deleted before them.
func TestClusterOrder(t *testing.T) {
	t.Parallel()
	cluster := &smallCluster{changed: make(chan struct{}), version: 1}
	server := httptest.NewServer(cluster)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	config := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\ncurrent-context: c\n"
	pod := func(name, on string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, annotations: {runonce/depends-on: %s}}\nspec: {containers: [{name: main, image: i}]}\n---\n", name, on)
	}
	for name, text := range map[string]string{"kubeconfig": config, "pods.yaml": pod("web", "api") + pod("api", "db") + strings.Replace(pod("db", "x"), "depends-on", "other", 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--kubeconfig", filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "pods.yaml")}
	if got := invokeWith(t, noEngine(t), append([]string{"run", "--settle", "0", "--rm"}, flags...)...); got.code != 0 {
		t.Fatalf("run: %+v", got)
	}
	want := []string{
		"create db", "ready db", "create api", "ready api", "create web",
		"delete web", "delete api", "delete db",
	}
	got := slices.DeleteFunc(cluster.log, func(line string) bool { return line == "ready web" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
