package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

const (
	podMetrics  = "/apis/metrics.k8s.io/v1beta1/pods"
	nodeMetrics = "/apis/metrics.k8s.io/v1beta1/nodes"
)

// measured returns a machine on which all containers use a quarter of a processor, and all of it a half.
func measured() *machine {
	m, start := newMachine(), time.Now()
	m.used = func(pod *v1.Pod) (map[string]podusage.Sample, error) {
		if pod.Name == "ending" {
			return nil, errors.New("it has just ended")
		}
		all := map[string]podusage.Sample{}
		for _, c := range pod.Status.ContainerStatuses {
			all[c.Name] = podusage.Sample{CPU: time.Hour + time.Since(start)/4, Memory: 8 << 20, WorkingSet: 3 << 20}
		}
		return all, nil
	}
	m.whole = func() (podusage.Sample, error) {
		return podusage.Sample{CPU: time.Since(start) / 2, WorkingSet: 1 << 30}, nil
	}
	m.set(mirror.Pods, pod("default", "web", labelled("app", "web")), pod("other", "job"), pod("default", "ending"),
		pod("default", "done", func(pod *v1.Pod) { pod.Status.ContainerStatuses[0].State = v1.ContainerState{} }))
	return m
}

// TestPodMetrics: what "kubectl top pods" asks for.
func TestPodMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := measured()
		begun := time.Now()
		list := decoded[metricsv1beta1.PodMetricsList](t, m.get(t, podMetrics))
		want(t, "time of the first one", time.Since(begun), time.Second)
		want(t, "kind", list.Kind+" "+list.APIVersion, "PodMetricsList metrics.k8s.io/v1beta1")
		want(t, "pods", len(list.Items), 2)
		web := list.Items[0]
		want(t, "pod", fmt.Sprint(web.Namespace, web.Name, web.Labels, web.Window.Duration, len(web.Containers)), "default"+"web"+"map[app:web] 1s 1")
		want(t, "timestamp", web.Timestamp.Time.Equal(time.Now()), true)
		usage := web.Containers[0].Usage
		want(t, "usage", fmt.Sprint(web.Containers[0].Name, usage.Cpu(), usage.Memory()), "main250m 3Mi")
		for query, expect := range map[string]string{
			podMetrics + "?labelSelector=app":                      "web",
			podMetrics + "?labelSelector=!app":                     "job",
			podMetrics + "?fieldSelector=metadata.name%3Djob":      "job",
			"/apis/metrics.k8s.io/v1beta1/namespaces/default/pods": "web",
			"/apis/metrics.k8s.io/v1beta1/namespaces/none/pods":    "",
			podMetrics + "?limit=1":                                "web",
		} {
			want(t, query, names(t, m.get(t, query)), expect)
		}
		one := decoded[metricsv1beta1.PodMetrics](t, m.get(t, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/web"))
		want(t, "one", one.Kind+" "+one.Name, "PodMetrics web")
		for _, name := range []string{"done", "job"} {
			failed(t, name, m.get(t, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/"+name), http.StatusNotFound, fmt.Sprintf("pods.metrics.k8s.io %q not found", name))
		}
		failed(t, "field", m.get(t, podMetrics+"?fieldSelector=status.phase%3DRunning"), http.StatusBadRequest, "field label not supported: status.phase")
		failed(t, "a delete", m.ask(t, http.MethodDelete, podMetrics, ""), http.StatusMethodNotAllowed, `this server does not delete pods: what it shows is what "runonce run" has started, or "runonce watch"`)
		want(t, "time of all others", time.Since(begun), time.Second)
	})
}

// TestSamples: what an earlier request has measured is compared with, unless it is too old or lacks a container.
func TestSamples(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := measured()
		ask := func(path string) (took, window time.Duration) {
			begun := time.Now()
			list := decoded[metricsv1beta1.PodMetricsList](t, m.get(t, path))
			return time.Since(begun), list.Items[0].Window.Duration
		}
		check := func(what, path string, wantTook, wantWindow time.Duration) {
			took, window := ask(path)
			want(t, what+" takes", took, wantTook)
			want(t, what+" is of", window, wantWindow)
		}
		check("the first one", podMetrics, time.Second, time.Second)
		time.Sleep(9 * time.Second)
		check("one of a sample that is kept", podMetrics, 0, 10*time.Second)
		check("the first one of nodes", nodeMetrics, time.Second, time.Second)
		time.Sleep(9 * time.Second)
		check("one of nodes", nodeMetrics, 0, 10*time.Second)
		check("one that renews the sample", podMetrics, 0, 20*time.Second)
		time.Sleep(16 * time.Second)
		check("one of nodes that renews its sample", nodeMetrics, 0, 26*time.Second)
		check("one of the renewed sample", podMetrics, 0, 16*time.Second)
		time.Sleep(2 * time.Minute)
		check("one of a sample that is too old", podMetrics, time.Second, time.Second)
		time.Sleep(5 * time.Second)
		m.set(mirror.Pods, pod("default", "new"))
		check("one with a new container", podMetrics, time.Second, time.Second)
	})
}

// TestNodeMetrics: what "kubectl top nodes" asks for.
func TestNodeMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := measured()
		list := decoded[metricsv1beta1.NodeMetricsList](t, m.get(t, nodeMetrics+"?labelSelector=machine"))
		want(t, "nodes", len(list.Items), 1)
		want(t, "usage", fmt.Sprint(list.Items[0].Name, " ", list.Items[0].Usage.Cpu(), " ", list.Items[0].Usage.Memory()), "node 500m 1Gi")
		want(t, "others", len(decoded[metricsv1beta1.NodeMetricsList](t, m.get(t, nodeMetrics+"?labelSelector=!machine")).Items), 0)
		one := decoded[metricsv1beta1.NodeMetrics](t, m.get(t, nodeMetrics+"/node"))
		want(t, "one", one.Kind, "NodeMetrics")
		failed(t, "another one", m.get(t, nodeMetrics+"/none"), http.StatusNotFound, `nodes.metrics.k8s.io "none" not found`)
		table := decoded[metav1.Table](t, m.get(t, nodeMetrics, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"))
		want(t, "rows", fmt.Sprint(len(table.Rows), table.Rows[0].Cells[0]), "1node")
	})
}

// TestNoUsage: that nothing is known is not said as that nothing is used, and a client that goes is not waited for.
func TestNoUsage(t *testing.T) {
	t.Parallel()
	m := newMachine()
	for _, path := range []string{podMetrics, nodeMetrics, nodeMetrics + "/node"} {
		failed(t, path, m.get(t, path), http.StatusInternalServerError, "Internal error occurred: nothing is known")
	}
	synctest.Test(t, func(t *testing.T) {
		m := measured()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		w, begun := httptest.NewRecorder(), time.Now()
		m.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, podMetrics, nil))
		want(t, "time", time.Since(begun), time.Second/2)
		if strings.Contains(w.Body.String(), "items") {
			t.Errorf("%s", w.Body.String())
		}
	})
}
