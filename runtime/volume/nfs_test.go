package volume

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/volume/mount"
)

func TestNFS(t *testing.T) {
	t.Parallel()
	pod := testPod(
		volume("a", v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "files.example", Path: "/srv"}}),
		volume("b", v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "fd00::1", Path: "/ro", ReadOnly: true}}),
	)
	m, r := testManager(t)
	for range 2 {
		if err := m.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"nfs files.example:/srv []", "nfs [fd00::1]:/ro [ro]"}, r.calls[1:]); diff != "" {
		t.Error(diff)
	}
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "a", MountPath: "/a"}, {Name: "b", MountPath: "/b"}}}
	mounts, err := m.Mounts(pod, c, nil)
	if err != nil || mounts[0].Options[2] != "rw" || mounts[1].Options[2] != "ro" {
		t.Errorf("mounts %+v, %v", mounts, err)
	}
	if err := m.Teardown(t.Context(), pod); err != nil || len(r.mounted) > 0 {
		t.Errorf("Teardown: %v, left %q", err, r.mounted)
	}

	m, r = testManager(t)
	r.old = true
	err = m.Setup(t.Context(), pod)
	var permanent interface{ Permanent() bool }
	if !errors.Is(err, mount.ErrNoNFS) || !errors.As(err, &permanent) || !permanent.Permanent() {
		t.Errorf("without the helper: %v, want a permanent %v", err, mount.ErrNoNFS)
	}
}
