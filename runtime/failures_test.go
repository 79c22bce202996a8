package runtime_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// listed returns the one pod that a process of its own finds.
func (n *node) listed(t *testing.T) *v1.Pod {
	t.Helper()
	pods, err := n.pods(t.Context(), t).List(t.Context())
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	return pods[0]
}

// TestWaitingReasonIsRecorded: a later process knows why a container waits, as long as it has
// not been started since.
func TestWaitingReasonIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		want := func(state, message string) {
			t.Helper()
			pod := n.listed(t)
			if got := strings.Join(states(pod.Status), " "); got != state {
				t.Errorf("got %s, want %s", got, state)
			}
			if w := pod.Status.ContainerStatuses[0].State.Waiting; w != nil && !strings.Contains(w.Message, message) {
				t.Errorf("message %q, want %q", w.Message, message)
			}
		}
		pod := testPod(v1.RestartPolicyAlways, "sleep 1m", "sleep")
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "localhost/far:1", v1.PullNever
		if err := n.pods(t.Context(), t).Sync(t.Context(), pod); err == nil {
			t.Fatal("it started")
		}
		want("c0=waiting ErrImageNeverPull c1=running", "is not present with pull policy of Never")

		// It is there now, and runs.
		n.engine.Store["localhost/far:1"] = n.engine.Registry["localhost/far:1"]
		p := n.pods(t.Context(), t)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		want("c0=running c1=running", "")
		time.Sleep(2 * time.Minute)
		want("c0=exit0 c1=running", "")

		// Its next instance cannot be started.
		delete(n.engine.Store, "localhost/far:1")
		if err := n.pods(t.Context(), t).Sync(t.Context(), pod); err == nil {
			t.Fatal("it started")
		}
		want("c0=waiting ErrImageNeverPull c1=running", "is not present with pull policy of Never")
		if last := n.listed(t).Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 0 {
			t.Errorf("it ended before: %+v", last)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.left(t)
	})
}

// TestPodFailureIsRecorded: a later process also knows why a pod has no containers at all.
func TestPodFailureIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		n.sandboxes.Err = func(*v1.Pod) error { return errors.New("no free address") }
		if err := n.pods(t.Context(), t).Sync(t.Context(), pod); err == nil {
			t.Fatal("it started")
		}
		got := n.listed(t).Status
		if got.Phase != v1.PodPending || got.Reason != "CreatePodSandboxError" || !strings.Contains(got.Message, "no free address") {
			t.Errorf("%s %s %s", got.Phase, got.Reason, got.Message)
		}
		n.sandboxes.Err = nil
		if err := n.pods(t.Context(), t).Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if got := n.listed(t).Status; got.Phase != v1.PodRunning || got.Reason != "" {
			t.Errorf("%s %s %s", got.Phase, got.Reason, got.Message)
		}
	})
}

// A sandbox that could not be made is not removed again: the plugin that hung would hang once
// more.
func TestFailedSandboxIsUndoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.sandboxes.Err = func(*v1.Pod) error { return errors.New("the plugin hangs") }
		n.sandboxes.RemoveErr = func(*v1.Pod) error { return errors.New("the plugin hangs again") }
		err := n.pods(t.Context(), t).Sync(t.Context(), testPod(v1.RestartPolicyAlways, "sleep"))
		if err == nil || !strings.Contains(err.Error(), "the plugin hangs") || strings.Contains(err.Error(), "again") {
			t.Errorf("error %v", err)
		}
		if left := n.cgroups.Left(); len(left) > 0 {
			t.Errorf("cgroups left: %v", left)
		}
	})
}
