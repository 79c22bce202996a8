package runtime_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// containers returns the engine's containers of a pod by name.
func (n *node) containers(t *testing.T, pod *v1.Pod) map[string]engine.Container {
	t.Helper()
	all, err := n.engine.Containers(t.Context(), string(pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]engine.Container{}
	for _, c := range all {
		of[c.Name] = c
	}
	return of
}

// TestIDsAreNew: no container has the ID of an earlier one, which its engine may still be cleaning up.
func TestIDsAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		pod.Spec.ShareProcessNamespace = new(true)
		p := n.pods(t.Context(), t)
		seen := map[string]bool{}
		start := func() {
			t.Helper()
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			all := n.containers(t, pod)
			if len(all) != 3 {
				t.Errorf("%d containers", len(all))
			}
			for name, c := range all {
				if seen[c.ID] {
					t.Errorf("%s again: %s", name, c.ID)
				}
				seen[c.ID] = true
			}
		}
		start()
		time.Sleep(time.Second)
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		start()
		time.Sleep(time.Second)
		for _, c := range n.containers(t, pod) {
			n.engine.Kill(c.ID, 137)
		}
		start()
	})
}
