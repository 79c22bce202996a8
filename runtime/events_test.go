package runtime_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// TestKillingEvents: the event of a container that is stopped says why, in the kubelet's words.
func TestKillingEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var mu sync.Mutex
		var killing []string
		n.event = func(_ *v1.Pod, eventType, reason, message string) {
			mu.Lock()
			defer mu.Unlock()
			if reason == "Killing" {
				killing = append(killing, eventType+" "+message)
			}
		}
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		pod.Spec.Containers[0].LivenessProbe = execProbe("exit", "1")
		pod.Spec.Containers[0].LivenessProbe.FailureThreshold = 1
		sync := func() {
			t.Helper()
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		sync()
		time.Sleep(time.Minute)
		sync()
		changed := pod.DeepCopy()
		changed.Spec.Containers[1].Image = "localhost/far:1"
		n.engine.Store["localhost/far:1"] = engine.Image{Ref: "localhost/far:1", ID: "sha256:2", Entrypoint: []string{"/bin/box"}}
		pod = changed
		sync()
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(killing)
		killing = slices.Compact(killing) // the probe may fail again meanwhile
		want := []string{
			"Normal Container c0 failed liveness probe, will be restarted", "Normal Container c1 definition changed, will be restarted",
			"Normal Stopping container c0", "Normal Stopping container c1",
		}
		if !slices.Equal(killing, want) {
			t.Errorf("events: %q, want %q", killing, want)
		}
	})
}
