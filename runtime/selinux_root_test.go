package runtime

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/record"
)

func TestRelabel(t *testing.T) {
	roottest.Require(t)
	records := record.Open(t.TempDir(), t.TempDir())
	p := &Pods{o: Options{Records: records}}
	dir := records.Dir("uid-1")
	file := filepath.Join(dir, "volumes", "kubernetes.io~empty-dir", "v", "f")
	link := filepath.Join(dir, "volumes", "l")
	outside := filepath.Join(t.TempDir(), "host")
	message := p.terminationLog(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid-1"}}, "c0", 0)
	export, img := filepath.Join(dir, "volumes", "kubernetes.io~nfs", "v", "f"), filepath.Join(dir, "volumes", "kubernetes.io~image", "v", "f")
	for _, path := range []string{file, filepath.Join(dir, HostsFile), message, outside, export, img} {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	// An image is mounted read-only.
	if err := unix.Mount("none", filepath.Dir(img), "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Dir(img), 0) })
	const label = "system_u:object_r:container_file_t:s0:c1,c2"
	if err := p.relabel("uid-1", label); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: label + "\x00", filepath.Join(dir, HostsFile): label + "\x00", message: label + "\x00", outside: "", export: ""} {
		buf := make([]byte, 256)
		n, err := unix.Lgetxattr(path, "security.selinux", buf)
		if got := string(buf[:max(n, 0)]); got != want {
			t.Errorf("%s: label %q, %v, want %q", path, got, err, want)
		}
	}
}
