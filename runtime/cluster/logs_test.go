package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestPath: the log of an instance is that of the container or of the one before, as the status has it; one
// that has gone since is replaced by the last one that has ended.
func TestPath(t *testing.T) {
	t.Parallel()
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	const (
		newest   = "/api/v1/namespaces/default/pods/web/log?container=main"
		previous = newest + "&previous=true"
	)
	for name, test := range map[string]struct {
		id          string // of the newest instance; the log of b is looked for
		state, last v1.ContainerState
		want        string
	}{
		"runs":                     {id: "b", state: running, want: newest},
		"runs again":               {id: "b", state: running, last: ended("a"), want: newest},
		"has ended":                {id: "b", state: ended("b"), want: newest},
		"waits to be restarted":    {id: "b", state: waiting, last: ended("b"), want: previous},
		"has a successor":          {id: "c", state: running, last: ended("b"), want: previous},
		"its successor has ended":  {id: "c", state: ended("c"), last: ended("b"), want: previous},
		"forgotten":                {id: "d", state: running, last: ended("c"), want: previous},
		"forgotten, all has ended": {id: "d", state: ended("d"), last: ended("c"), want: newest},
		"forgotten, all waits":     {id: "c", state: waiting, last: ended("c"), want: previous},
		"never there":              {state: waiting},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{annotationContent: ""}}}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{
			{Name: "other", ContainerID: "x", State: ended("x")},
			{Name: "main", ContainerID: test.id, State: test.state, LastTerminationState: test.last},
		}
		p := &Pods{cache: newPodCache(func(*v1.Pod) {})}
		p.cache.put(pod)
		if got := p.Path(pod, "main", "b"); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestLogRemoved: what a kubelet sends instead of a log that it has removed is no log.
func TestLogRemoved(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/version":
			_, _ = fmt.Fprint(w, "{}")
		case r.URL.Query().Has("previous"):
			_, _ = fmt.Fprint(w, "unable to retrieve container logs for containerd://76bbca279adf")
		default:
			_, _ = fmt.Fprint(w, strings.Repeat("a line\n", 1000))
		}
	}))
	defer server.Close()
	c, err := dial(t.Context(), Config{rest: &rest.Config{Host: server.URL}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p, out := &Pods{c: c}, &strings.Builder{}
	if err := p.Logs(t.Context(), "default", "web", LogOptions{Container: "main", Previous: true}, out); !errors.Is(err, ErrLogRemoved) || out.Len() > 0 {
		t.Errorf("%v, %q", err, out)
	}
	if err := p.Logs(t.Context(), "default", "web", LogOptions{Container: "main"}, out); err != nil || out.Len() != 7000 {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}
