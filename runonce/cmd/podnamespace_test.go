package cmd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// oneNamespace is an API server whose user may use one namespace alone, which has a pod of an earlier run
// until that is deleted.
type oneNamespace struct {
	name string

	mu      sync.Mutex
	deleted chan struct{} // closed when the pod is
}

// refuse sends an error.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func (s *oneNamespace) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resource, ours := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+s.name+"/")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Path == "/version":
		_, _ = fmt.Fprint(w, "{}")
	case !ours:
		refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", fmt.Errorf(`User "bot" cannot list resource "pods" at %s`, r.URL.Path)))
	case r.Method == http.MethodDelete:
		close(s.deleted)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case resource == "pods" && r.URL.Query().Has("watch"):
		s.watch(w, r)
	case resource == "pods":
		_ = json.NewEncoder(w).Encode(s.list())
	case strings.HasPrefix(resource, "pods/"):
		refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web"))
	default:
		kind := map[string]string{"services": "Service", "configmaps": "ConfigMap", "secrets": "Secret", "serviceaccounts": "ServiceAccount"}[resource]
		_, _ = fmt.Fprintf(w, `{"kind":"%sList","apiVersion":"v1","items":[]}`, kind)
	}
}

func (s *oneNamespace) pod() v1.Pod {
	return v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "web", UID: "u", ResourceVersion: "6", Labels: map[string]string{"runonce/managed": "true"}},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
}

func (s *oneNamespace) list() *v1.PodList {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	select {
	case <-s.deleted:
	default:
		list.Items = append(list.Items, s.pod())
	}
	return list
}

// watch sends all pods, and then when the pod is deleted, until the client has enough.
func (s *oneNamespace) watch(w http.ResponseWriter, r *http.Request) {
	events := json.NewEncoder(w)
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, pod := range s.list().Items {
			_ = events.Encode(map[string]any{"type": "ADDED", "object": pod})
		}
		end := v1.Pod{TypeMeta: s.pod().TypeMeta, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		_ = events.Encode(map[string]any{"type": "BOOKMARK", "object": end})
	}
	_ = http.NewResponseController(w).Flush()
	deleted := s.deleted
	if len(s.list().Items) == 0 {
		deleted = nil
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-deleted:
		_ = events.Encode(map[string]any{"type": "DELETED", "object": s.pod()})
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case <-r.Context().Done():
	}
}

// TestPodNamespace: a user of one namespace, which the kubeconfig does not name, can name it.
func TestPodNamespace(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&oneNamespace{name: "team", deleted: make(chan struct{})})
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args           string
		code           int
		stdout, stderr string // parts
	}{
		{"ps", 4, "", "give a namespace that you may use with -n, or set that of the context"},
		{"down --all", 4, "", "give a namespace that you may use with -n"},
		{"ps -n other", 4, "", `cannot list resource "pods"`},
		{"ps -n team", 0, "web", ""},
		{"down web -n other", 4, "", "cannot list"},
		{"down web --pod-namespace team", 0, "team/web removed", ""},
		{"down --all -n team", 0, "", "there are no pods of earlier runs"},
		{"ps -n Team", 2, "", `--pod-namespace "Team": a lowercase RFC 1123 label must consist of`},
	} {
		got := invokeWith(t, noEngine(t), append(strings.Fields(step.args), "--kubeconfig", kubeconfig)...)
		if got.code != step.code || !strings.Contains(got.stdout, step.stdout) || !strings.Contains(got.stderr, step.stderr) || step.stdout == "" && got.stdout != "" {
			t.Errorf("%s: %+v", step.args, got)
		}
	}
}
