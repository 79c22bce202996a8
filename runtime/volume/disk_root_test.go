package volume

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/disk"
)

// podWithDisk returns a pod with a disk.
func podWithDisk(uid string, readOnly bool, name string) *v1.Pod {
	pod := testPod(diskVolume("data", v1.GCEPersistentDiskVolumeSource{PDName: name, ReadOnly: readOnly}))
	pod.UID = types.UID(uid)
	return pod
}

// TestDiskOnAHost: an empty disk gets a file system, what is written to it outlives the pod, and no other pod can write to
// it at the same time.
func TestDiskOnAHost(t *testing.T) {
	m := hostManager(t)
	name := disk.Attach(t, "data", "")
	path := func(p *v1.Pod) string { return filepath.Join(m.path(p, &p.Spec.Volumes[0]), "file") }
	teardown := func(p *v1.Pod) {
		t.Helper()
		if err := m.Teardown(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	first := podWithDisk("first", false, name)
	setUp(t, m, first)
	if err := os.WriteFile(path(first), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, second := range []*v1.Pod{podWithDisk("second", false, name), podWithDisk("reader", true, name)} {
		if err := m.Setup(t.Context(), second); err == nil || failure.IsPermanent(err) {
			t.Errorf("while another pod has the disk: %v", err)
		}
		teardown(second)
	}
	teardown(first)

	readers := []*v1.Pod{podWithDisk("one", true, name), podWithDisk("two", true, name)}
	for _, p := range readers {
		setUp(t, m, p)
		if data, err := os.ReadFile(path(p)); err != nil || string(data) != "kept" {
			t.Errorf("%s reads %q, %v", p.UID, data, err)
		}
		if err := os.WriteFile(path(p), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s writes: %v", p.UID, err)
		}
	}
	for _, p := range readers {
		teardown(p)
	}
}

// TestDisksThatAreLeftAlone: a disk with something else keeps it, one that is attached read-only is not written to.
func TestDisksThatAreLeftAlone(t *testing.T) {
	m := hostManager(t)
	file := filepath.Join(t.TempDir(), "other")
	content := append(append(make([]byte, 8<<10), "something else!!"...), make([]byte, 32<<20-16)...)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		pod       *v1.Pod
		want      string
		permanent bool
	}{
		{podWithDisk("a", false, disk.Attach(t, "other", file)), "neither empty nor has it an ext4 file system", true},
		{podWithDisk("b", false, disk.Attach(t, "read-only", "", "--read-only")), "is attached read-only", true},
		{podWithDisk("c", true, disk.Attach(t, "read-only-empty", "", "--read-only")), "is empty, and attached read-only", true},
		{podWithDisk("d", false, "runonce-no-such-disk"), "/dev/disk/by-id/google-runonce-no-such-disk does not exist: attach the disk", false},
	} {
		err := m.Setup(t.Context(), test.pod)
		if err == nil || !strings.Contains(err.Error(), test.want) || failure.IsPermanent(err) != test.permanent {
			t.Errorf("%s: %v", test.pod.UID, err)
		}
		if err := m.Teardown(t.Context(), test.pod); err != nil {
			t.Error(err)
		}
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, content) {
		t.Errorf("the content of the disk has changed, %v", err)
	}
}

// TestPartitionOfADisk mounts a partition by its own name.
func TestPartitionOfADisk(t *testing.T) {
	m := hostManager(t)
	name := disk.Attach(t, "whole", "")
	device, err := filepath.EvalSymlinks("/dev/disk/by-id/google-" + name)
	if err != nil {
		t.Fatal(err)
	}
	disk.Name(t, device, name+"-part2")
	pod := podWithDisk("part", false, name)
	pod.Spec.Volumes[0].GCEPersistentDisk.Partition = 2
	setUp(t, m, pod)
	mount, err := m.Mounter.Lookup(m.path(pod, &pod.Spec.Volumes[0]))
	if err != nil || mount.FSType != "ext4" {
		t.Errorf("mounted %+v, %v", mount, err)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}
