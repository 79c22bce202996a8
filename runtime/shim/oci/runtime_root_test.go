package oci

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/roottest"
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
