package runtime_test

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
)

// TestFail: a pod that was failed by its run stays so, for later processes too, until it
// is stopped.
func TestFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		p := n.pods(t.Context(), t)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := p.Fail(t.Context(), pod, "TooMuch", "enough is enough"); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*runtime.Pods{p, n.pods(t.Context(), t)} {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			s := wantStates(t.Context(), t, p, pod, "c0=exit143")
			if s.Phase != v1.PodFailed || s.Reason != "TooMuch" || s.Message != "enough is enough" || s.StartTime == nil {
				t.Errorf("phase %s, reason %s, message %s, started %v", s.Phase, s.Reason, s.Message, s.StartTime)
			}
			for _, c := range s.Conditions {
				if c.Type == v1.PodReady && (c.Status != v1.ConditionFalse || c.Reason != "PodFailed") {
					t.Errorf("condition %+v", c)
				}
			}
		}
		if sandboxes := n.sandboxes.Left(); len(sandboxes) > 0 {
			t.Errorf("sandboxes left: %v", sandboxes)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if s := wantStates(t.Context(), t, p, pod, "c0=running"); s.Phase != v1.PodRunning {
			t.Errorf("phase %s after a new start", s.Phase)
		}
	})
}
