package podspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

func ephemeral(name, image string) v1.EphemeralContainer {
	return v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: image}}
}

// TestEphemeral: they are found by name, and are not among those that say what becomes of the pod.
func TestEphemeral(t *testing.T) {
	t.Parallel()
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}, EphemeralContainers: []v1.EphemeralContainer{ephemeral("debug", "x")}}}
	if got := podspec.Container(pod, "debug"); got == nil || got.Image != "x" {
		t.Errorf("found %v", got)
	}
	if a, b := len(podspec.Containers(pod)), len(podspec.AllContainers(pod)); a != 1 || b != 2 {
		t.Errorf("%d and %d containers", a, b)
	}
	if policy := podspec.RestartPolicy(pod, podspec.Container(pod, "debug")); policy != v1.RestartPolicyNever {
		t.Errorf("restart policy %s", policy)
	}
}

// TestMergeEphemeral: none is changed or lost.
func TestMergeEphemeral(t *testing.T) {
	t.Parallel()
	of := func(all ...v1.EphemeralContainer) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{EphemeralContainers: all}} }
	old := of(ephemeral("a", "1"), ephemeral("b", "1"))
	got := podspec.MergeEphemeral(old, of(ephemeral("b", "2"), ephemeral("c", "2")))
	if diff := cmp.Diff([]v1.EphemeralContainer{ephemeral("a", "1"), ephemeral("b", "1"), ephemeral("c", "2")}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(old.Spec.EphemeralContainers) != 2 {
		t.Error("the pod was changed")
	}
}
