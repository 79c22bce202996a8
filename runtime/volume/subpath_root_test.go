package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func subPathPod(host, sub string) (*v1.Pod, *v1.Container) {
	pod := testPod(
		volume("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host}}),
		volume("conf", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}),
	)
	return pod, &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{
		{Name: "host", MountPath: "/data", SubPath: sub}, {Name: "conf", MountPath: "/etc/a.conf", SubPath: "a"},
	}}
}

func TestSubPathIsMounted(t *testing.T) {
	m := hostManager(t)
	host := t.TempDir()
	if err := os.Chmod(host, 0o770); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(host, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	pod, c := subPathPod(host, "link/$(NAME)")
	c.VolumeMounts[0].SubPathExpr, c.VolumeMounts[0].SubPath = c.VolumeMounts[0].SubPath, ""
	setUp(t, m, pod)
	for range 2 { // the second as for a restarted container
		mounts, err := m.Mounts(pod, c, []string{"NAME=web"})
		if err != nil {
			t.Fatal(err)
		}
		for _, mt := range mounts {
			switch mt.Destination {
			case "/data":
				if err := os.WriteFile(filepath.Join(mt.Source, "x"), nil, 0o600); err != nil {
					t.Error(err)
				}
			case "/etc/a.conf":
				if data, err := os.ReadFile(mt.Source); err != nil || string(data) != "one" {
					t.Errorf("a.conf: %q, %v", data, err)
				}
			}
		}
	}
	if info, err := os.Stat(filepath.Join(host, "real", "web")); err != nil || info.Mode().Perm() != 0o770 {
		t.Errorf("the directory that was missing: %v, %v, want the mode of the volume", info, err)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(host, "real", "web", "x")); err != nil {
		t.Errorf("Teardown removed what is in the hostPath: %v", err)
	}
}

// A container that can write to a volume creates links in it; at its next start the sub-path
// must not lead to the host.
func TestSubPathCannotEscape(t *testing.T) {
	secret := t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "shadow"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		plant func(dir string) error
		sub   string
	}{
		{"absolute link", func(d string) error { return os.Symlink(secret, filepath.Join(d, "out")) }, "out"},
		{"link in the middle", func(d string) error { return os.Symlink(secret, filepath.Join(d, "out")) }, "out/shadow"},
		{"relative link", func(d string) error { return os.Symlink("../../../../../../../etc", filepath.Join(d, "out")) }, "out/passwd"},
		{"link to make directories behind", func(d string) error { return os.Symlink(secret, filepath.Join(d, "out")) }, "out/new/dir"},
		{"link to a link", func(d string) error {
			return errors.Join(os.Symlink("two", filepath.Join(d, "one")), os.Symlink("/etc", filepath.Join(d, "two")))
		}, "one"},
		{"link to the root of a process", func(d string) error { return os.Symlink("/proc/self/root/etc", filepath.Join(d, "out")) }, "out"},
		{"dangling link", func(d string) error { return os.Symlink("/nowhere/at/all", filepath.Join(d, "out")) }, "out"},
		{"loop", func(d string) error { return os.Symlink("out", filepath.Join(d, "out")) }, "out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := hostManager(t)
			host := t.TempDir()
			if err := tt.plant(host); err != nil {
				t.Fatal(err)
			}
			pod, c := subPathPod(host, tt.sub)
			setUp(t, m, pod)
			_, err := m.Mounts(pod, c, nil)
			if !errors.Is(err, errEscape) {
				t.Fatalf("error %v, want %v", err, errEscape)
			}
			want := `failed to prepare subPath for volumeMount "host" of container "c": open ` + filepath.Join(host, tt.sub) + ": the path leads out of the volume"
			if err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
			if entries, err := os.ReadDir(secret); err != nil || len(entries) != 1 {
				t.Errorf("something was made outside: %v, %v", entries, err)
			}
			if err := m.Teardown(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// While the mount is being prepared, a container keeps replacing a directory by a link to the
// host. The host's directory must never be mounted.
func TestSubPathRace(t *testing.T) {
	m := hostManager(t)
	host, secret := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "shadow"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Mkdir(filepath.Join(host, "sub"), 0o755), os.Symlink(secret, filepath.Join(host, "evil")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	pod, c := subPathPod(host, "sub")
	setUp(t, m, pod)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(host, "sub"), unix.AT_FDCWD, filepath.Join(host, "evil"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	good, refused := 0, 0
	for range 500 {
		mounts, err := m.Mounts(pod, c, nil)
		if err != nil {
			refused++
			continue
		}
		good++
		for _, mt := range mounts {
			if mt.Destination != "/data" {
				continue
			}
			if _, err := os.Stat(filepath.Join(mt.Source, "shadow")); err == nil {
				t.Fatal("the container has got the host's directory")
			}
		}
	}
	close(stop)
	<-done
	t.Logf("%d mounted, %d refused", good, refused)
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}
