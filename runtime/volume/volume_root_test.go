package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// hostManager makes real mounts.
func hostManager(t *testing.T) *Manager {
	t.Helper()
	roottest.Require(t)
	m := &Manager{Root: t.TempDir(), Objects: testObjects(), Mounter: HostMounts{}}
	t.Cleanup(func() {
		left, err := HostMounts{}.Below(m.Root)
		if err != nil || len(left) > 0 {
			t.Errorf("mounts left behind: %v, %v", left, err)
			_ = UnmountBelow(HostMounts{}, m.Root)
		}
	})
	return m
}

func setUp(t *testing.T, m *Manager, pod *v1.Pod) {
	t.Helper()
	t.Cleanup(func() {
		if err := m.Teardown(context.WithoutCancel(t.Context()), pod); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		if err := m.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSecretsAndMemoryAreNotOnDisk(t *testing.T) {
	m := hostManager(t)
	size := resource.MustParse("1Mi")
	pod := testPod(
		volume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}),
		volume("mem", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &size}}),
	)
	setUp(t, m, pod)
	for i := range pod.Spec.Volumes {
		dir := m.path(pod, &pod.Spec.Volumes[i])
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
			t.Errorf("%s: file system %#x, %v, want tmpfs", dir, st.Type, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("%s: mode %v, %v, want 0777", dir, info.Mode(), err)
		}
	}
	big := filepath.Join(m.path(pod, &pod.Spec.Volumes[1]), "big")
	if err := os.WriteFile(big, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing 2 MiB to a volume of 1 MiB: %v, want ENOSPC", err)
	}
	if held := m.InMemory(pod); len(held) != 1 || held["mem"] != size.Value() {
		t.Errorf("in memory: %v", held)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func TestFSGroup(t *testing.T) {
	m := hostManager(t)
	pod := testPod(
		volume("work", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volume("conf", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "conf"}, DefaultMode: new(int32(0o400)),
		}}),
	)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4321))}
	setUp(t, m, pod)
	for path, want := range map[string]os.FileMode{
		m.path(pod, &pod.Spec.Volumes[0]):                     os.ModeDir | os.ModeSetgid | 0o777,
		filepath.Join(m.path(pod, &pod.Spec.Volumes[1]), "a"): 0o440,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Gid != 4321 || info.Mode() != want {
			t.Errorf("%s: group %d, mode %v, want 4321, %v", path, st.Gid, info.Mode(), want)
		}
	}
	first, err := os.Readlink(filepath.Join(m.path(pod, &pod.Spec.Volumes[1]), "..data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Readlink(filepath.Join(m.path(pod, &pod.Spec.Volumes[1]), "..data")); err != nil || again != first {
		t.Errorf("files that have not changed are written again: %s, %s, %v", first, again, err)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// A shared mount of the host is mounted below a volume: unmounting the pod's copy must not
// unmount the host's.
func TestTeardownLeavesTheHostsMounts(t *testing.T) {
	m := hostManager(t)
	host := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := HostMounts{}
	must(h.Mount("tmpfs", host, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = UnmountBelow(h, host) })
	must(h.Mount("", host, "", unix.MS_SHARED, ""))
	must(os.MkdirAll(filepath.Join(host, "sub", "inner"), 0o755))
	pod, c := subPathPod(host, "sub")
	shared := v1.MountPropagationBidirectional
	c.VolumeMounts[0].MountPropagation = &shared
	setUp(t, m, pod)
	_, err := m.Mounts(pod, c, nil)
	must(err)
	inner := filepath.Join(host, "sub", "inner")
	must(h.Mount("tmpfs", inner, "tmpfs", 0, ""))
	must(os.WriteFile(filepath.Join(inner, "x"), nil, 0o600))
	must(m.Teardown(t.Context(), pod))
	if _, err := os.Stat(filepath.Join(inner, "x")); err != nil {
		t.Errorf("the host's mount is gone: %v", err)
	}
}

// What a container has mounted into a volume with bidirectional propagation is unmounted with
// the pod, and its content is kept.
func TestTeardownUnmountsWhatContainersMounted(t *testing.T) {
	m := hostManager(t)
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod := testPod(volume("work", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	setUp(t, m, pod)
	inside := filepath.Join(m.path(pod, &pod.Spec.Volumes[0]), "deep", "mnt")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (HostMounts{}).Mount(precious, inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	// The removal does not enter a mount.
	err := removeAll(m.dir(pod, volumesDir))
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "something is mounted there") {
		t.Errorf("removing across a mount: %v, want EBUSY", err)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(precious, "x")); err != nil {
		t.Errorf("Teardown entered a mount: %v", err)
	}
}

func TestLookup(t *testing.T) {
	m := hostManager(t)
	h := HostMounts{}
	dir := filepath.Join(m.Root, "a")
	if err := errors.Join(os.Mkdir(dir, 0o755), h.Mount("tmpfs", dir, "tmpfs", 0, ""), os.Mkdir(filepath.Join(dir, "b"), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := UnmountBelow(h, dir); err != nil {
			t.Error(err)
		}
	})
	for flag, shared := range map[uintptr]bool{unix.MS_PRIVATE: false, unix.MS_SHARED: true} {
		if err := h.Mount("", dir, "", flag, ""); err != nil {
			t.Fatal(err)
		}
		got, err := h.Lookup(filepath.Join(dir, "b"))
		if err != nil || got.Mountpoint != dir || isShared(got) != shared || isSlave(got) {
			t.Errorf("%+v, %v, want %s, shared: %t", got, err, dir, shared)
		}
	}
}

// A claim's data outlives its pod, and a container that writes to it cannot use fsGroup to
// change files of the host.
func TestClaims(t *testing.T) {
	m := hostManager(t)
	m.ClaimsDir = t.TempDir()
	claim := func(name string, readOnly bool) v1.Volume {
		return volume(name, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}})
	}
	pod := testPod(claim("data", false), claim("ro", true))
	setUp(t, m, pod)
	dir := filepath.Join(m.ClaimsDir, "default", "data")
	outside := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "kept"), []byte("x"), 0o600), os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(dir, "link")), os.Symlink("kept", filepath.Join(dir, "inner")),
	); err != nil {
		t.Fatal(err)
	}
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/a"}, {Name: "ro", MountPath: "/b"}}}
	mounts, err := m.Mounts(pod, c, nil)
	if err != nil || mounts[0].Source != dir || mounts[0].Options[2] != "rw" || mounts[1].Options[2] != "ro" {
		t.Errorf("mounts %+v, %v", mounts, err)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(data) != "x" {
		t.Errorf("the claim's data: %q, %v", data, err)
	}

	mode := func(path string) (os.FileMode, uint32) {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatal("no stat")
		}
		return info.Mode().Perm(), st.Gid
	}
	policy := v1.FSGroupChangeOnRootMismatch
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4321)), FSGroupChangePolicy: &policy}
	setUp(t, m, pod)
	if perm, gid := mode(filepath.Join(dir, "kept")); perm != 0o660 || gid != 4321 {
		t.Errorf("kept: %o of group %d, want 660 of 4321", perm, gid)
	}
	if perm, gid := mode(outside); perm != 0o600 || gid == 4321 {
		t.Errorf("the host's file: %o of group %d, want what it was", perm, gid)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if perm, _ := mode(filepath.Join(dir, "new")); perm != 0o600 {
		t.Errorf("OnRootMismatch with a right root: a file is %o, want 600", perm)
	}
	always := v1.FSGroupChangeAlways
	pod.Spec.SecurityContext.FSGroupChangePolicy = &always
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if perm, _ := mode(filepath.Join(dir, "new")); perm != 0o660 {
		t.Errorf("Always: a file is %o, want 660", perm)
	}
}

func TestOwnersAndModes(t *testing.T) {
	m := hostManager(t)
	pod := testPod(
		volume("conf", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "conf"}, DefaultUser: new(int64(501)),
			Items: []v1.KeyToPath{{Key: "a", Path: "a"}, {Key: "b", Path: "b", User: new(int64(502))}},
		}}),
		volume("disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Mode: new(int32(0o1770))}}),
		volume("mem", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, Mode: new(int32(0o700))}}),
	)
	setUp(t, m, pod)
	for name, want := range map[string]uint32{"a": 501, "b": 502} {
		info, err := os.Stat(filepath.Join(m.path(pod, &pod.Spec.Volumes[0]), name))
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != want {
			t.Errorf("%s belongs to %d, want %d", name, st.Uid, want)
		}
	}
	for i, want := range map[int]os.FileMode{1: os.ModeSticky | 0o770, 2: 0o700} {
		info, err := os.Stat(m.path(pod, &pod.Spec.Volumes[i]))
		if err != nil || info.Mode() != os.ModeDir|want {
			t.Errorf("%s: %v, %v, want %v", pod.Spec.Volumes[i].Name, info.Mode(), err, want)
		}
	}
}

// TestDevices: a device of the host is accepted only as a volume of its type.
func TestDevices(t *testing.T) {
	m := hostManager(t)
	dir := t.TempDir()
	block := filepath.Join(dir, "block")
	if err := unix.Mknod(block, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))); err != nil {
		roottest.Lacks(t, "the right to make a block device: %v", err)
	}
	for kind, want := range map[v1.HostPathType]string{
		v1.HostPathBlockDev: "", v1.HostPathUnset: "",
		v1.HostPathCharDev:   "hostPath type check failed: " + block + " is not a character device",
		v1.HostPathDirectory: "hostPath type check failed: " + block + " is not a directory",
	} {
		pod := testPod(volume("v", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: block, Type: &kind}}))
		got := ""
		if err := m.Setup(t.Context(), pod); err != nil {
			got = err.Error()
		}
		if want != "" {
			want = `setting up volume "v": ` + want
		}
		if got != want {
			t.Errorf("%q: %s, want %s", kind, got, want)
		}
		if err := m.Teardown(t.Context(), pod); err != nil {
			t.Error(err)
		}
	}
}

// TestHugePages: the medium is a hugetlbfs of the requested size.
func TestHugePages(t *testing.T) {
	m := hostManager(t)
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		roottest.Lacks(t, "huge pages of 2 MiB")
	}
	pod := testPod(volume("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}))
	setUp(t, m, pod)
	var st unix.Statfs_t
	if err := unix.Statfs(m.path(pod, &pod.Spec.Volumes[0]), &st); err != nil || st.Type != unix.HUGETLBFS_MAGIC || st.Bsize != 2<<20 {
		t.Errorf("file system %#x with pages of %d, %v", st.Type, st.Bsize, err)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkPod(b *testing.B) {
	roottest.Require(b)
	m := &Manager{Root: b.TempDir(), Objects: testObjects(), Mounter: HostMounts{}}
	pod := testPod(
		volume("work", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volume("conf", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}),
		volume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}),
	)
	for b.Loop() {
		if err := m.Setup(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
		if _, err := m.Mounts(pod, &pod.Spec.Containers[0], nil); err != nil {
			b.Fatal(err)
		}
		if err := m.Teardown(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
	}
}
