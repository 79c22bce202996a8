package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/exectest"
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
	if !errors.Is(err, errNoNFS) || !errors.As(err, &permanent) || !permanent.Permanent() {
		t.Errorf("without the helper: %v, want a permanent %v", err, errNoNFS)
	}
}

func TestMountNFS(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\necho \"$@\" >" + filepath.Join(dir, "args") + "\n[ \"$1\" = good:/x ] || { echo no such export >&2; exit 32; }\n"
	exectest.Write(t, filepath.Join(dir, "mount.nfs"), script)
	if err := (HostMounts{}).MountNFS(t.Context(), "good:/x", "/t", []string{"ro", "soft"}); err != nil {
		t.Fatal(err)
	}
	if args, err := os.ReadFile(filepath.Join(dir, "args")); err != nil || strings.TrimSpace(string(args)) != "good:/x /t -o ro,soft" {
		t.Errorf("the helper got %q, %v", args, err)
	}
	err := HostMounts{}.MountNFS(t.Context(), "bad:/x", "/t", nil)
	if want := "mount.nfs bad:/x: exit status 32: no such export"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestWithoutNFSHelper(t *testing.T) {
	for _, dir := range []string{"/sbin", "/usr/sbin"} {
		if _, err := os.Stat(dir + "/mount.nfs"); err == nil {
			t.Skip("mount.nfs is installed")
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := (HostMounts{}).MountNFS(t.Context(), "good:/x", "/t", nil); !errors.Is(err, errNoNFS) || HasNFS() {
		t.Errorf("error %v, want %v", err, errNoNFS)
	}
}
