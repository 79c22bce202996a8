package runtime_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
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

// TestConclude: what a run has decided about a pod is on its record, and has no effect on it.
func TestConclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		p := n.pods(t.Context(), t)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		before, err := p.Status(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Conclude(t.Context(), pod, "Failed", "Why", "that is why"); err != nil {
			t.Fatal(err)
		}
		r, err := n.records.Load(pod.UID)
		if err != nil || r.Outcome == nil || r.Outcome.Outcome != "Failed" || r.Outcome.Message != "that is why" || r.Outcome.DecidedAt.IsZero() {
			t.Errorf("record %+v, %v", r.Outcome, err)
		}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		after, err := p.Status(t.Context(), pod)
		if diff := cmp.Diff(before, after); diff != "" || err != nil {
			t.Errorf("the status has changed: %s, %v", diff, err)
		}
		if err := p.Conclude(t.Context(), pod, "", "", ""); err != nil {
			t.Fatal(err)
		}
		if r, err := n.records.Load(pod.UID); err != nil || r.Outcome != nil {
			t.Errorf("taken back: %+v, %v", r.Outcome, err)
		}
	})
}
