package volume

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func claimVolume(name string) v1.Volume {
	return volume(name, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
}

func pv(name string, from v1.PersistentVolumeSource, options ...string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PersistentVolumeSpec{PersistentVolumeSource: from, MountOptions: options},
	}
}

// TestClaimsOfVolumes: what a claim is mounted from, and whether it may be written.
func TestClaimsOfVolumes(t *testing.T) {
	t.Parallel()
	m, r := testManager(t)
	m.ClaimsDir = t.TempDir()
	o, ok := m.Objects.(objects)
	if !ok {
		t.Fatal("other objects")
	}
	local, host := t.TempDir(), filepath.Join(t.TempDir(), "new")
	create := v1.HostPathDirectoryOrCreate
	o.add("own", v1.ReadWriteOnce, &v1.PersistentVolume{})
	o.add("many", v1.ReadOnlyMany, &v1.PersistentVolume{})
	o.add("web-tmp", v1.ReadWriteOnce, &v1.PersistentVolume{})
	o.add("disk", v1.ReadWriteOnce, pv("pv-disk", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: local}}))
	o.add("host", v1.ReadWriteOnce, pv("pv-host", v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host, Type: &create}}))
	o.add("net", v1.ReadWriteMany, pv("pv-net", v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "files", Path: "/srv"}}, "nfsvers=4.1", "hard"))
	pod := testPod(claimVolume("own"), claimVolume("many"), claimVolume("disk"), claimVolume("host"), claimVolume("net"),
		volume("tmp", v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}))
	for range 2 {
		if err := m.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	c := &v1.Container{Name: "c"}
	for _, v := range pod.Spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	mounts, err := m.Mounts(pod, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, mount := range mounts {
		got[mount.Destination] = strings.ReplaceAll(mount.Source, m.dir(pod), "POD") + " " + mount.Options[2]
	}
	want := map[string]string{
		"/own": filepath.Join(m.ClaimsDir, "default/own") + " rw", "/many": filepath.Join(m.ClaimsDir, "default/many") + " ro",
		"/disk": local + " rw", "/host": host + " rw", "/net": "POD/volumes/kubernetes.io~nfs/pv-net rw",
		"/tmp": "POD/volumes/kubernetes.io~local-volume/tmp rw", "/dev/shm": "POD/shm rw",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"nfs files:/srv [nfsvers=4.1 hard]"}, r.calls[1:]); d != "" {
		t.Error(d)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{local, host, filepath.Join(m.ClaimsDir, "default", "own")} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(m.dir(pod, volumesDir)); err == nil {
		t.Error("the ephemeral volume outlives its pod")
	}
}

func TestLocalVolumes(t *testing.T) {
	t.Parallel()
	m, _ := testManager(t)
	o, ok := m.Objects.(objects)
	if !ok {
		t.Fatal("other objects")
	}
	for path, want := range map[string]string{
		"/no/such/dir": `setting up volume "disk": path "/no/such/dir" does not exist`,
		"/dev/null":    `setting up volume "disk": path "/dev/null" is not a directory: mount the device and name the directory`,
	} {
		o.add("disk", v1.ReadWriteOnce, pv("pv", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}}))
		if err := m.Setup(t.Context(), testPod(claimVolume("disk"))); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestOneMakesTheDirectory: pods that share a claim get the same directory, even when they
// start at the same time.
func TestOneMakesTheDirectory(t *testing.T) {
	t.Parallel()
	for round := range 50 {
		dir := filepath.Join(t.TempDir(), "claim")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if err := makeDir(dir, 0o777); err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if files, err := os.ReadDir(dir); err != nil || len(files) != 8 {
			t.Fatalf("round %d: %d files, %v: what was written is lost", round, len(files), err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
}
