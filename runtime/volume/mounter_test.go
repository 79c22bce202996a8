package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestMountsAbove(t *testing.T) {
	t.Parallel()
	const table = `22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 8:1 / /srv/a rw shared:1 - ext4 /dev/sda1 rw
`
	for path, want := range map[string]string{"/": "/", "/srv/a": "/srv/a", "/srv/a/b": "/srv/a", "/srv/ab": "/"} {
		infos, err := mountinfo.GetMountsFromReader(strings.NewReader(table), above(path))
		if err != nil || len(infos) == 0 || infos[len(infos)-1].Mountpoint != want {
			t.Errorf("%s: %v, %v, want %s", path, infos, err, want)
		}
	}
}

func TestRemoveAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim, outside := filepath.Join(dir, "victim"), filepath.Join(dir, "outside")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(victim, "a", "b"), 0o755),
		os.WriteFile(filepath.Join(victim, "a", "file"), nil, 0o600),
		os.Mkdir(outside, 0o755),
		os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600),
		os.Symlink(outside, filepath.Join(victim, "link")),
		os.Symlink("../outside/kept", filepath.Join(victim, "a", "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := removeAll(victim); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("the directory is still there")
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	if err := removeAll(filepath.Join(dir, "none", "at", "all")); err != nil {
		t.Errorf("an absent directory: %v", err)
	}
}

func TestBelowSortsAndExcludesSiblings(t *testing.T) {
	t.Parallel()
	got, err := HostMounts{}.Below("/proc", filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range got {
		if !within(p.Mountpoint, "/proc") || (i > 0 && len(p.Mountpoint) > len(got[i-1].Mountpoint)) {
			t.Errorf("mounts %+v", got)
		}
	}
	if within("/a/bc", "/a/b") || !within("/a/b", "/a/b") || !within("/a/b/c", "/a/b") {
		t.Error("within accepts a sibling or refuses a child")
	}
}
