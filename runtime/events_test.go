package runtime_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// TestKillingEvents: the event of a container that is stopped says why, in the kubelet's words.
func TestKillingEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var mu sync.Mutex
		var killing []string
		n.event = func(_ *v1.Pod, e podevent.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Reason == "Killing" {
				killing = append(killing, e.Type+" "+e.Message)
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

// TestEventsOfPods: what happens to a pod is kept in the kubelet's words, also when the pod is gone, for as long as its
// logs.
func TestEventsOfPods(t *testing.T) {
	running := func(_ *node, pod *v1.Pod) { pod.Spec.RestartPolicy = v1.RestartPolicyAlways }
	for name, c := range map[string]struct {
		change func(n *node, pod *v1.Pod)
		want   []string // type, container, reason and message, and how often
	}{
		"life": {running, []string{
			`Normal "" Pulled: Container image "localhost/box:1" already present on machine x1`, `Normal "c0" Created: Created container c0 x1`,
			`Normal "c0" Started: Started container c0 x1`, `Normal "c0" Killing: Stopping container c0 x1`,
		}},
		"oom": {func(n *node, _ *v1.Pod) {
			n.engine.Program = func(engine.ContainerConfig) enginetest.Behavior { return enginetest.Behavior{Code: 137, OOM: true} }
		}, []string{
			`Normal "" Pulled: Container image "localhost/box:1" already present on machine x1`, `Normal "c0" Created: Created container c0 x1`,
			`Normal "c0" Started: Started container c0 x1`, `Warning "c0" OOMKilling: Container c0 ran out of memory; a process of it was killed x1`,
		}},
		"crashes": {func(n *node, pod *v1.Pod) {
			running(n, pod)
			n.engine.Program = func(engine.ContainerConfig) enginetest.Behavior { return enginetest.Behavior{Code: 1} }
		}, []string{
			`Normal "" Pulled: Container image "localhost/box:1" already present on machine x5`, `Normal "c0" Created: Created container c0 x5`,
			`Normal "c0" Started: Started container c0 x5`, `Warning "c0" BackOff: Back-off restarting failed container c0 in pod web_default(uid-1) x2`,
		}},
		"no image": {func(_ *node, pod *v1.Pod) { pod.Spec.Containers[0].Image = "localhost/none:1" }, []string{
			`Normal "" Pulling: Pulling image "localhost/none:1" x7`,
			`Warning "c0" Failed: Failed to pull image "localhost/none:1": pulling "localhost/none:1": no such image in the registry x7`, `Warning "c0" Failed: Error: ErrImagePull x7`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				pod := testPod(v1.RestartPolicyNever, "sleep")
				c.change(n, pod)
				p := n.pods(t.Context(), t)
				for range 6 {
					_ = p.Sync(t.Context(), pod)
					time.Sleep(10 * time.Second)
				}
				if err := n.pods(t.Context(), t).Sync(t.Context(), pod); err != nil && name == "oom" {
					t.Error(err) // another process sees the same
				}
				if name != "crashes" && name != "no image" {
					if err := p.Stop(t.Context(), pod); err != nil {
						t.Fatal(err)
					}
				}
				all, err := p.Events(t.Context(), pod)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range all {
					got = append(got, fmt.Sprintf("%s %q %s: %s x%d", e.Type, e.Container, e.Reason, e.Message, e.Count))
				}
				slices.Sort(got)
				slices.Sort(c.want)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
