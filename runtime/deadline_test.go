package runtime_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/podstate"
)

// TestOverdue: whether a pod has failed by its deadline depends on when its containers ended,
// even if one succeeds when it is stopped.
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

// TestDeadlineNeverEarly: the deadline counts from the exact start of the pod, also in a later
// process, although the API's times have whole seconds.
func TestDeadlineNeverEarly(t *testing.T) {
	for _, process := range []string{"the same", "a later"} {
		t.Run(process+" process", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(900 * time.Millisecond)
				n := newNode(t)
				p := n.pods(t.Context(), t)
				pod := testPod(v1.RestartPolicyNever, "sleep")
				deadline := int64(60)
				pod.Spec.ActiveDeadlineSeconds = &deadline
				if err := p.Sync(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if process == "a later" {
					p = n.pods(t.Context(), t)
				}
				look := func(want string) {
					t.Helper()
					if err := p.Sync(t.Context(), pod); err != nil {
						t.Fatal(err)
					}
					s, err := p.Status(t.Context(), pod)
					if got := string(s.Phase) + " " + s.Reason; err != nil || got != want {
						t.Errorf("%s, %v, want %s", got, err, want)
					}
				}
				time.Sleep(time.Minute - time.Millisecond)
				look("Running ")
				time.Sleep(time.Millisecond)
				look("Failed DeadlineExceeded")
			})
		})
	}
}

// TestDeadlineEndsHook: a postStart hook does not keep a pod from ending by its deadline.
func TestDeadlineEndsHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newNode(t).pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep")
		pod.Spec.ActiveDeadlineSeconds = new(int64(60))
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3600}}}
		begin := time.Now()
		if err := p.Sync(t.Context(), pod); failure.Reason(err, "") != podstate.ReasonPostStartHook {
			t.Fatalf("%v, want a hook that was cut off", err)
		}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("took %s, want the deadline of 1m", took)
		}
		if s := wantStates(t.Context(), t, p, pod, "c0=exit143"); s.Reason != "DeadlineExceeded" {
			t.Errorf("phase %s, reason %q", s.Phase, s.Reason)
		}
	})
}
