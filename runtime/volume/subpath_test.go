package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

func TestOpenSubPath(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "a", "b"), 0o755),
		os.WriteFile(filepath.Join(root, "a", "file"), nil, 0o600),
		os.Symlink("a", filepath.Join(root, "in")),
		os.Symlink("../a/b", filepath.Join(root, "a", "updown")),
		os.Symlink("..", filepath.Join(root, "a", "top")),
		os.Symlink("/etc", filepath.Join(root, "abs")),
		os.Symlink("../..", filepath.Join(root, "a", "out")),
		os.Chmod(root, os.ModeSetgid|0o775),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		sub  string
		want string // path below root, empty when refused
	}{
		{"a", "a"},
		{"a/b/", "a/b"},
		{"./a", "a"},
		{"a/file", "a/file"},
		{"in/b", "a/b"},
		{"a/updown", "a/b"},
		{"a/top/a", "a"},
		{"new", "new"},
		{"in/new/deeper", "a/new/deeper"},
		{"abs", ""},
		{"abs/passwd", ""},
		{"a/out", ""},
		{"a/out/x", ""},
		{"a/file/x", ""},
		{"..", ""},
		{"a/../..", ""},
		{"/a", ""},
		{"a\x00b", ""},
	}
	for _, tt := range tests {
		f, err := openSubPath(root, tt.sub, true)
		if tt.want == "" {
			if err == nil {
				t.Errorf("%q is opened", tt.sub)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tt.sub, err)
			continue
		}
		got, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.Stat(filepath.Join(root, tt.want))
		if err != nil || !os.SameFile(got, want) {
			t.Errorf("%q is not %s: %v", tt.sub, tt.want, err)
		}
		_ = f.Close()
	}
	if info, err := os.Stat(filepath.Join(root, "a/new/deeper")); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o775 {
		t.Errorf("a directory that was missing: %v, %v, want the mode of the volume", info.Mode(), err)
	}
}

func TestOpenSubPathOutOfTheVolume(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(root, "abs")); err != nil {
		t.Fatal(err)
	}
	if _, err := openSubPath(root, "abs/passwd", true); !errors.Is(err, errEscape) {
		t.Errorf("error %v, want %v", err, errEscape)
	}
	if _, err := openSubPath(filepath.Join(root, "none"), "x", true); errors.Is(err, errEscape) || !errors.Is(err, unix.ENOENT) {
		t.Errorf("error %v, want that the volume is missing", err)
	}
}

// TestSubPathErrors: a message says which path could not be used and why, and whether that can change.
func TestSubPathErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.Symlink("/etc", filepath.Join(dir, "out"))); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, host, sub, want string
		retries               int // 0 for no limit
		permanent             bool
	}{
		{"no volume", dir + "/none/", "sub", dir + "/none/: no such file or directory: waiting for somebody to make it, as hostPath type DirectoryOrCreate would", 5, false},
		{"below a file", dir, "file/sub", dir + "/file/sub: not a directory", 0, false},
		{"out of the volume", dir, "out/passwd", dir + "/out/passwd: the path leads out of the volume", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, _ := testManager(t)
			pod := testPod(volume("v", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: tt.host}}))
			c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: tt.sub}}}
			_, err := m.Mounts(pod, c, nil)
			if want := `failed to prepare subPath for volumeMount "v" of container "c": open ` + tt.want; err == nil || err.Error() != want {
				t.Fatalf("error %v, want %s", err, want)
			}
			if n, _ := failure.Retries(err); n != tt.retries || failure.IsPermanent(err) != tt.permanent || failure.Reason(err, "") != failure.ReasonConfigError {
				t.Errorf("%d retries, permanent: %t, reason %s", n, failure.IsPermanent(err), failure.Reason(err, ""))
			}
		})
	}
}

// Whatever the path and the links, what is opened is in the volume and nothing is created
// outside of it.
func FuzzOpenSubPath(f *testing.F) {
	f.Add("a/b", "x", "../..")
	f.Add("x", "x", "/etc")
	f.Add("x/y", "x", "../volume2")
	f.Add("x/../y", "y", "x")
	f.Fuzz(func(t *testing.T, sub, link, to string) {
		outer := t.TempDir()
		root := filepath.Join(outer, "volume")
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		if filepath.IsLocal(link) && !strings.Contains(link, "/") && !strings.ContainsRune(to, 0) {
			_ = os.Symlink(to, filepath.Join(root, link))
		}
		file, err := openSubPath(root, sub, true)
		if entries, rerr := os.ReadDir(outer); rerr != nil || len(entries) != 1 {
			t.Fatalf("something was created outside: %v, %v", entries, rerr)
		}
		if err != nil {
			return
		}
		defer func() { _ = file.Close() }()
		opened, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		if err != nil || (opened != root && !strings.HasPrefix(opened, root+"/")) {
			t.Errorf("opened %q, %v", opened, err)
		}
	})
}
