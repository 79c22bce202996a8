package cluster

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestEnded: the kubelet reports an end later than its runtime knows of it.
func TestEnded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reported time.Duration // after the question
		ended    bool
	}{
		"reported":        {0, true},
		"reported soon":   {2 * time.Second, true},
		"runs for longer": {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
				begin := time.Now()
				server := answers(func() (*http.Response, error) {
					state := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
					if time.Since(begin) >= test.reported {
						state = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
					}
					pod.Status.EphemeralContainerStatuses = []v1.ContainerStatus{{Name: "debugger", State: state}}
					body, err := json.Marshal(pod)
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
				})
				c, err := newClient(&rest.Config{Host: "https://192.0.2.1", Transport: server}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				ended, err := (&Pods{c: c}).Ended(t.Context(), pod, "debugger")
				if err != nil || ended != test.ended {
					t.Errorf("ended %t, %v", ended, err)
				}
			})
		})
	}
}
