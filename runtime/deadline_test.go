package runtime_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestOverdue: whether a pod failed by its deadline is told by when its containers ended,
// also when one ends well because it is stopped.
func TestOverdue(t *testing.T) {
	for name, want := range map[string]string{
		"exit 0": "Succeeded ", "exit 1": "Failed ", "sleep 59s": "Succeeded ", "sleep 2m": "Failed DeadlineExceeded", "sleep": "Failed DeadlineExceeded",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newNode(t).pods(t.Context(), t)
			pod := testPod(v1.RestartPolicyNever, name)
			deadline := int64(60)
			pod.Spec.ActiveDeadlineSeconds = &deadline
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			s, err := p.Status(t.Context(), pod)
			if got := string(s.Phase) + " " + s.Reason; err != nil || got != want {
				t.Errorf("%s: %s, %v, want %s", name, got, err, want)
			}
		})
	}
}
