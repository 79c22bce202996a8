package oci

import (
	"os"
	"path/filepath"
	"testing"

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
