package podstate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestVolumeMounts(t *testing.T) {
	t.Parallel()
	possible, enabled, disabled := v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyDisabled
	c := &v1.Container{VolumeMounts: []v1.VolumeMount{
		{Name: "a", MountPath: "/a"},
		{Name: "b", MountPath: "/b", ReadOnly: true},
		{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: &possible},
		{Name: "d", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &disabled},
	}}
	for able, mode := range map[bool]*v1.RecursiveReadOnlyMode{true: &enabled, false: &disabled} {
		want := []v1.VolumeMountStatus{
			{Name: "a", MountPath: "/a"},
			{Name: "b", MountPath: "/b", ReadOnly: true, RecursiveReadOnly: &disabled},
			{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: mode},
			{Name: "d", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &disabled},
		}
		if diff := cmp.Diff(want, volumeMounts(&v1.Pod{}, c, func(*v1.Pod) bool { return able })); diff != "" {
			t.Errorf("with the runtime able %t (-want +got):\n%s", able, diff)
		}
	}
}
