package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMountNFS(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\necho \"$@\" >" + filepath.Join(dir, "args") + "\n[ \"$1\" = good:/x ] || { echo no such export >&2; exit 32; }\n"
	if err := os.WriteFile(filepath.Join(dir, "mount.nfs"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Host{}).MountNFS(t.Context(), "good:/x", "/t", []string{"ro", "soft"}); err != nil {
		t.Fatal(err)
	}
	if args, err := os.ReadFile(filepath.Join(dir, "args")); err != nil || strings.TrimSpace(string(args)) != "good:/x /t -o ro,soft" {
		t.Errorf("the helper got %q, %v", args, err)
	}
	err := Host{}.MountNFS(t.Context(), "bad:/x", "/t", nil)
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
	if err := (Host{}).MountNFS(t.Context(), "good:/x", "/t", nil); !errors.Is(err, ErrNoNFS) || HasNFS() {
		t.Errorf("error %v, want %v", err, ErrNoNFS)
	}
}
