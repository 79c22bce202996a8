package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runonce/runonce/internal/podusage"
)

// TestUsage: the answer of the metrics API is for our pods alone, whose containers are in their order.
func TestUsage(t *testing.T) {
	t.Parallel()
	const answer = `{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [
		{"metadata": {"name": "other", "namespace": "a"}, "containers": [{"name": "x", "usage": {"cpu": "1", "memory": "1Gi"}}]},
		{"metadata": {"name": "web", "namespace": "a"}, "timestamp": "2026-01-01T00:00:00Z", "window": "15s", "containers": [
			{"name": "side", "usage": {"cpu": "1500u", "memory": "2Mi"}}, {"name": "main", "usage": {"cpu": "250123456n", "memory": "1024Ki"}}]}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Accept") != "application/json":
			w.WriteHeader(http.StatusNotAcceptable)
		case r.URL.Path == "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods" && r.URL.Query().Get("labelSelector") == "runonce/managed=true":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, answer)
		case r.URL.Path == "/apis/metrics.k8s.io/v1beta1/namespaces/broken/pods":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	c, err := newClient(&rest.Config{Host: server.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := &Pods{c: c}
	pod := func(namespace string) []*v1.Pod {
		return []*v1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}, {Name: "side"}, {Name: "new"}}},
		}}
	}
	got, err := p.Usage(t.Context(), pod("a"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[types.NamespacedName]podusage.Pod{{Namespace: "a", Name: "web"}: {
		Usage: podusage.Usage{CPUMillicores: 253, MemoryBytes: 3 << 20},
		Containers: []podusage.Container{
			{Name: "main", Usage: podusage.Usage{CPUMillicores: 251, MemoryBytes: 1 << 20}},
			{Name: "side", Usage: podusage.Usage{CPUMillicores: 2, MemoryBytes: 2 << 20}},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := p.Usage(t.Context(), pod("none")); !errors.Is(err, ErrNoMetrics) {
		t.Errorf("a cluster without the metrics API: %v", err)
	}
	if _, err := p.Usage(t.Context(), pod("broken")); err == nil || errors.Is(err, ErrNoMetrics) {
		t.Errorf("a metrics API that does not answer: %v", err)
	}
}
