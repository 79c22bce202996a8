package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestDeleteOfAKilledCreation: runc that was killed while its program was mounted in the container's
// directory does not keep the container from being created again.
func TestDeleteOfAKilledCreation(t *testing.T) {
	roottest.Require(t)
	reaper, err := NewReaper()
	if err != nil {
		t.Fatal(err)
	}
	r := Runtime{Program: "runc", Root: t.TempDir(), Reaper: reaper}
	state := filepath.Join(r.Root, "c")
	mounted := filepath.Join(state, "runc.XXXXXX")
	if err := os.Mkdir(state, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mounted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc/self/exe", mounted, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	if err := r.DeleteForced(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

// TestRunWithoutSpace: an error says that there is no space for the runtime's files, which it cannot
// tell itself.
func TestRunWithoutSpace(t *testing.T) {
	roottest.Require(t)
	for size, want := range map[string]string{"16k": ": no space left on device", "1m": "", "1m,nr_inodes=1": ": no space left on device"} {
		r := script(t, "exit 1")
		r.Root = t.TempDir()
		if err := unix.Mount("tmpfs", r.Root, "tmpfs", 0, "size="+size); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(r.Root, 0) })
		if want != "" {
			want = ": write " + r.Root + want
		}
		_, err := r.Run(t.Context(), Command{Args: []string{"create"}})
		if err == nil || err.Error() != "rt: exit status 1"+want {
			t.Errorf("%s: %v", size, err)
		}
	}
}

// TestDeleteWithoutTheRuntime: the cgroups and the state of a container are removed, unless somebody is still there.
func TestDeleteWithoutTheRuntime(t *testing.T) {
	roottest.Require(t)
	group := fmt.Sprintf("/runonce-test-%d/c", os.Getpid())
	var dirs []string
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		dir := filepath.Join(m.Mountpoint, group)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = unix.Rmdir(dir)
			_ = unix.Rmdir(filepath.Dir(dir))
		})
		dirs = append(dirs, dir)
	}
	if len(dirs) == 0 {
		t.Fatal("there are no cgroups")
	}
	below := filepath.Join(dirs[0], "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Rmdir(below) })
	r := script(t, "echo not this way >&2; exit 1")
	files := state(t, r, "state.json", "exec.fifo")
	if err := r.Delete(t.Context(), "c", plainSpec(group)); err == nil || !strings.Contains(err.Error(), "not this way") {
		t.Errorf("with a cgroup below its own: %v", err)
	}
	if err := unix.Rmdir(below); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), "c", plainSpec(group)); err != nil {
		t.Error(err)
	}
	for _, dir := range append(dirs, files) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
