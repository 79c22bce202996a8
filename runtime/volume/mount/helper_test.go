package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMountRemote(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\necho \"$@\" >" + filepath.Join(dir, "args") + "\n[ \"$1\" = good:/x ] || { echo no such export >&2; exit 32; }\n"
	if err := os.WriteFile(filepath.Join(dir, "mount.testfs"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	err := Host{}.MountRemote(t.Context(), Remote{Kind: "testfs", Source: "good:/x", Target: "/t", Options: []string{"ro", "soft"}})
	if err != nil {
		t.Fatal(err)
	}
	if args, err := os.ReadFile(filepath.Join(dir, "args")); err != nil || strings.TrimSpace(string(args)) != "good:/x /t -o ro,soft" {
		t.Errorf("the helper got %q, %v", args, err)
	}
	err = Host{}.MountRemote(t.Context(), Remote{Kind: "testfs", Source: "bad:/x", Target: "/t"})
	if want := "mount.testfs bad:/x: exit status 32: no such export"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := (Host{}).MountRemote(t.Context(), Remote{Kind: "nofs"}); !errors.Is(err, ErrNoHelper) {
		t.Errorf("error %v, want %v", err, ErrNoHelper)
	}
}
