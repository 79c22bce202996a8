package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func TestReadFile(t *testing.T) {
	t.Parallel()
	m, _ := testManager(t)
	v := volume("work", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	pod := testPod(v)
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	dir, outside := m.path(pod, &v), filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.Mkdir(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "sub", "env"), []byte("A='1'"), 0o600),
		os.Symlink("sub/env", filepath.Join(dir, "inner")),
		os.Symlink(outside, filepath.Join(dir, "outer")),
		os.WriteFile(filepath.Join(dir, "big"), make([]byte, maxReadFile+1), 0o600),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"sub/env", "inner", "sub/../inner"} {
		if data, err := m.ReadFile(pod, "work", path); err != nil || string(data) != "A='1'" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	for _, path := range []string{"outer", "big", "fifo", "sub", "none", "../work/inner", outside} {
		if data, err := m.ReadFile(pod, "work", path); err == nil {
			t.Errorf("%s is read: %d bytes", path, len(data))
		}
	}
	if _, err := m.ReadFile(pod, "none", "x"); err == nil {
		t.Error("a volume that does not exist is read")
	}
}
