package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// recorder is a Mounter that mounts nothing and records the calls.
type recorder struct {
	mu      sync.Mutex
	calls   []string
	mounted []string
	listed  int  // how many times the mounts below existing directories were asked for
	private bool // nothing is a shared mount
	old     bool // the kernel does not know the option noswap, and there is no mount.nfs
}

func (r *recorder) Mount(source, target, fstype string, flags uintptr, data string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.old && strings.Contains(data, "noswap") {
		return unix.EINVAL
	}
	r.calls = append(r.calls, fmt.Sprintf("mount %s %s %s %#x", fstype, filepath.Base(target), data, flags))
	if source != "" {
		r.mounted = append(r.mounted, target)
	}
	return nil
}

func (r *recorder) MapUsers(source, target string, _ *os.File, propagation uint64) ([]string, error) {
	if r.old {
		return nil, errNotMappable
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf("map %s %s %#x", filepath.Base(source), filepath.Base(target), propagation))
	return []string{"nosuid"}, nil
}

func (r *recorder) Unmount(target string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mounted = slices.DeleteFunc(r.mounted, func(t string) bool { return t == target })
	return nil
}

func (r *recorder) Mounted(target string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.mounted, target), nil
}

func (r *recorder) MountNFS(_ context.Context, source, target string, options []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.old {
		return errNoNFS
	}
	r.calls = append(r.calls, fmt.Sprintf("nfs %s %v", source, options))
	r.mounted = append(r.mounted, target)
	return nil
}

func (r *recorder) MountDisk(_ context.Context, device, target string, readOnly bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf("disk %s read-only=%t", device, readOnly))
	r.mounted = append(r.mounted, target)
	return nil
}

func (r *recorder) Lookup(path string) (*mountinfo.Info, error) {
	if r.private {
		return &mountinfo.Info{Mountpoint: path}, nil
	}
	return &mountinfo.Info{Mountpoint: path, Optional: "shared:1"}, nil
}

func (r *recorder) Below(dirs ...string) ([]*mountinfo.Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(dirs, func(d string) bool { _, err := os.Stat(d); return err == nil }) {
		r.listed++
	}
	var found []*mountinfo.Info
	for _, t := range r.mounted {
		if slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(t, d) }) {
			found = append(found, &mountinfo.Info{Mountpoint: t})
		}
	}
	return found, nil
}

// objects are objects with PersistentVolumes.
type objects struct {
	enginetest.Objects
	volumes map[string]*v1.PersistentVolume
}

func (o objects) PersistentVolume(name string) (*v1.PersistentVolume, bool) {
	v, ok := o.volumes[name]
	return v, ok
}

// add adds a claim, bound to the volume if that has a name.
func (o objects) add(name string, mode v1.PersistentVolumeAccessMode, pv *v1.PersistentVolume) {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{mode}, VolumeName: pv.Name},
	}
	o.Claims["default/"+name] = c
	o.volumes[pv.Name] = pv
}

func testObjects() objects {
	o := objects{
		Objects: enginetest.Objects{
			Claims: map[string]*v1.PersistentVolumeClaim{},
			ConfigMaps: map[string]*v1.ConfigMap{"default/conf": {
				Data: map[string]string{"a": "one", "b": "two"}, BinaryData: map[string][]byte{"bin": {0, 1, 2}},
			}},
			Secrets: map[string]*v1.Secret{"default/key": {Data: map[string][]byte{"password": []byte("s3cret"), "user": []byte("me")}}},
		},
		volumes: map[string]*v1.PersistentVolume{},
	}
	for _, name := range []string{"data", "ro"} {
		o.add(name, v1.ReadWriteOnce, &v1.PersistentVolume{})
	}
	return o
}

func testPod(volumes ...v1.Volume) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "uid-1",
			Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"note": "a \"b\"\nc"},
		},
		Spec: v1.PodSpec{
			Volumes: volumes,
			Containers: []v1.Container{{
				Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
					v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourceMemory: resource.MustParse("64Mi"),
				}},
			}},
		},
	}
}

func volume(name string, source v1.VolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: source}
}

func testManager(t *testing.T) (*Manager, *recorder) {
	t.Helper()
	r := &recorder{}
	return &Manager{
		Root: t.TempDir(), Objects: testObjects(), Mounter: r,
		Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("4")},
	}, r
}

// tree lists what users of the volume see: path, mode, content.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	var walk func(rel string)
	walk = func(rel string) {
		info, err := os.Stat(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() {
			data, err := os.ReadFile(filepath.Join(dir, rel))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s %04o %s", rel, info.Mode().Perm(), data))
			return
		}
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "..") {
				walk(filepath.Join(rel, e.Name()))
			}
		}
	}
	walk(".")
	slices.Sort(out)
	return out
}

func TestMemory(t *testing.T) {
	t.Parallel()
	limit := resource.MustParse("10Mi")
	memory := func(size *resource.Quantity) v1.VolumeSource {
		return v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: size}}
	}
	unlimited := testPod(volume("v", memory(nil)))
	unlimited.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	withInit := testPod(volume("v", memory(nil)))
	withInit.Spec.InitContainers = []v1.Container{{Name: "unlimited"}}
	huge := testPod(volume("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}}))
	huge.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}
	tests := []struct {
		name string
		pod  *v1.Pod
		want string
	}{
		{"sizeLimit", testPod(volume("v", memory(&limit))), "mount tmpfs v size=10485760,noswap 0x6"},
		{"the pod's memory limit", testPod(volume("v", memory(nil))), "mount tmpfs v size=67108864,noswap 0x6"},
		{"the pod is not limited because of an init container", withInit, "mount tmpfs v size=1073741824,noswap 0x6"},
		{"the node's memory", unlimited, "mount tmpfs v size=1073741824,noswap 0x6"},
		{"secret", testPod(volume("v", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}})), "mount tmpfs v noswap 0x6"},
		{"huge pages", huge, "mount hugetlbfs v pagesize=2M 0x6"},
		{
			"huge pages by name",
			testPod(volume("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-1Gi"}})), "mount hugetlbfs v pagesize=1G 0x6",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, r := testManager(t)
			for range 2 {
				if err := m.Setup(t.Context(), tt.pod); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff([]string{"mount tmpfs shm mode=1777,size=65536k,noswap 0xe", tt.want}, r.calls); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMemoryOnAnOldKernel(t *testing.T) {
	t.Parallel()
	m, r := testManager(t)
	r.old = true
	pod := testPod(volume("v", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}))
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mount tmpfs shm mode=1777,size=65536k 0xe", "mount tmpfs v  0x6"}, r.calls); diff != "" {
		t.Error(diff)
	}
}

func TestEmptyDirKeepsWhatIsInIt(t *testing.T) {
	t.Parallel()
	m, _ := testManager(t)
	v := volume("work", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	pod := testPod(v)
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	dir := m.path(pod, &v)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("mode %v, %v, want 0777", info.Mode(), err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "x"), []byte("kept"), 0o600), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x 0600 kept"}, tree(t, dir)); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the mode that a container gave it: %v, %v, want 0700", info.Mode(), err)
	}
}

func TestHostPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	missing := filepath.Join(dir, "missing")
	const failed = "hostPath type check failed: "
	tests := []struct {
		name    string
		path    string
		kind    v1.HostPathType
		wantErr string
		want    fs.FileMode // of what is there afterwards
	}{
		{"any", missing, v1.HostPathUnset, "", 0},
		{"directory", dir, v1.HostPathDirectory, "", fs.ModeDir | 0o700},
		{"a file as a directory", file, v1.HostPathDirectory, failed + file + " is not a directory", 0},
		{"no directory", missing, v1.HostPathDirectory, failed + missing + " is not a directory: stat " + missing + ": no such file or directory", 0},
		{"new directory", filepath.Join(dir, "new", "deep"), v1.HostPathDirectoryOrCreate, "", fs.ModeDir | 0o755},
		{"a file as a new directory", file, v1.HostPathDirectoryOrCreate, failed + file + " is not a directory", 0},
		{"file", file, v1.HostPathFile, "", 0o600},
		{"a directory as a file", dir, v1.HostPathFile, failed + dir + " is not a file", 0},
		{"new file", filepath.Join(dir, "newfile"), v1.HostPathFileOrCreate, "", 0o644},
		{"new file without its directory", filepath.Join(missing, "f"), v1.HostPathFileOrCreate, "open " + missing + "/f: no such file or directory", 0},
		{"socket", socket, v1.HostPathSocket, "", 0},
		{"a file as a socket", file, v1.HostPathSocket, failed + file + " is not a socket file", 0},
		{"character device", "/dev/null", v1.HostPathCharDev, "", 0},
		{"a file as a character device", file, v1.HostPathCharDev, failed + file + " is not a character device", 0},
		{"a character device as a block device", "/dev/null", v1.HostPathBlockDev, failed + "/dev/null is not a block device", 0},
		{"dots", dir + "/../x", v1.HostPathUnset, "must not contain '..'", 0},
		{"no such type", dir, "Folder", "not a valid host path type", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, _ := testManager(t)
			pod := testPod(volume("v", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: tt.path, Type: &tt.kind}}))
			err := m.Setup(t.Context(), pod)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %s", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != 0 {
				info, err := os.Stat(tt.path)
				if err != nil || info.Mode().Type() != tt.want.Type() || (tt.want.Perm() != 0o700 && info.Mode().Perm() != tt.want.Perm()) {
					t.Errorf("mode %v, %v, want %v", info.Mode(), err, tt.want)
				}
			}
			if err := m.Teardown(t.Context(), pod); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("Teardown went into a hostPath: %v", err)
			}
		})
	}
}

// The directory of a pod without a uid would contain those of all pods.
func TestPodsWithoutUsableUID(t *testing.T) {
	t.Parallel()
	m, _ := testManager(t)
	other := testPod()
	if err := m.Setup(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"", ".", "..", "uid-1/volumes", "../pods/uid-1"} {
		pod := testPod()
		pod.UID = types.UID(uid)
		if err := m.Setup(t.Context(), pod); err == nil {
			t.Errorf("Setup accepts the uid %q", uid)
		}
		if err := m.Teardown(t.Context(), pod); err == nil {
			t.Errorf("Teardown accepts the uid %q", uid)
		}
	}
	if _, err := os.Stat(m.dir(other, shmDir)); err != nil {
		t.Error(err)
	}
}

// TestTeardownWithoutVolumes: the shared memory of a pod without volumes is unmounted without a
// look at all mounts of the machine, whose number grows with that of the pods.
func TestTeardownWithoutVolumes(t *testing.T) {
	t.Parallel()
	m, r := testManager(t)
	pod := testPod()
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	r.mounted = append(r.mounted, m.dir(pod, shmDir))
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.dir(pod, shmDir)); err == nil || len(r.mounted) > 0 || r.listed > 0 {
		t.Errorf("mounted: %q, mounts listed %d times", r.mounted, r.listed)
	}
}
