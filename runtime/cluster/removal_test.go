package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// deleting is an API server that accepts the deletion of a pod, which stays until it has no finalizers.
type deleting struct {
	pods  *Pods
	pod   *v1.Pod
	grace []string // the bodies of the requests to delete it
}

func (d *deleting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		d.grace = append(d.grace, string(body))
		d.pod = d.pod.DeepCopy()
		d.pod.DeletionTimestamp, d.pod.ResourceVersion = new(metav1.Now()), "8"
		d.pods.cache.put(d.pod)
	}
	body, err := json.Marshal(d.pod)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// TestFinalizers: what keeps a pod from being gone is named, and a deadline ends the wait for it.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	errOver := errors.New("the time is over")
	for _, test := range []struct {
		name       string
		finalizers []string
		want       string
	}{
		{"held", []string{"example.com/a", "example.com/b"}, `stopping pod "web": waiting until the pod is gone: the time is over; the pod stays until its finalizers are removed: example.com/a, example.com/b`},
		{"slow", nil, `stopping pod "web": waiting until the pod is gone: the time is over; the cluster is still deleting the pod`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pod := &v1.Pod{
					TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: types.UID("u"), ResourceVersion: "7", Finalizers: test.finalizers},
				}
				p := &Pods{cache: newPodCache(func(*v1.Pod) {}), ended: map[types.UID]v1.PodStatus{}}
				server := &deleting{pods: p, pod: pod}
				var err error
				if p.c, err = newClient(&rest.Config{Host: "https://192.0.2.1", Transport: server}, slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
				p.cache.put(pod)
				if got := p.Finalizers(pod); len(got) > 0 {
					t.Errorf("before it is deleted it waits for %v", got)
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errOver)
				defer cancel()
				begin := time.Now()
				if err = p.Stop(ctx, pod); err == nil || err.Error() != test.want || !errors.Is(err, errOver) {
					t.Errorf("error %v, want %s", err, test.want)
				}
				if got := p.Finalizers(pod); !slices.Equal(got, test.finalizers) || time.Since(begin) != 20*time.Second || len(server.grace) != 1 {
					t.Errorf("after %s it waits for %v; %d requests", time.Since(begin), got, len(server.grace))
				}
			})
		})
	}
}
