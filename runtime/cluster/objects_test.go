package cluster

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestApplied: only what the input says is sent, so that nothing else is owned.
func TestApplied(t *testing.T) {
	t.Parallel()
	o := &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Labels: map[string]string{"app": "web"}, ResourceVersion: "7"},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	}
	body, err := applied(o, true)
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"selector": map[string]any{"app": "web"}},
		"metadata": map[string]any{
			"namespace": "ns", "name": "web", "labels": map[string]any{"app": "web", labelManaged: "true"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestForCluster: a pod is created with all that the input may say of it, and nothing that the server says.
func TestForCluster(t *testing.T) {
	t.Parallel()
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}}
	got := forCluster(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "web"},
			Finalizers: []string{"a.example/b"}, OwnerReferences: owners,
		},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	})
	want := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web", Labels: map[string]string{"app": "web", labelManaged: "true"},
		Annotations: map[string]string{annotationContent: "u"}, Finalizers: []string{"a.example/b"}, OwnerReferences: owners,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestObjectPath(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Object{
		"/api/v1/namespaces/ns/configmaps/a": &v1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
		},
		"/api/v1/namespaces/b": &v1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "b"}},
		"/apis/node.k8s.io/v1/runtimeclasses/c": &nodev1.RuntimeClass{
			TypeMeta: metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}, ObjectMeta: metav1.ObjectMeta{Name: "c"},
		},
	} {
		if got := objectPath(o); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestLogQuery(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]LogOptions{
		"container=a": {Container: "a"},
		"container=a&follow=true&previous=true&sinceSeconds=1&tailLines=3&timestamps=true": {
			Container: "a", Previous: true, Follow: true, Tail: new(3), Since: time.Millisecond, Timestamps: true,
		},
	} {
		if got := o.query().Encode(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
