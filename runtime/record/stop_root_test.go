package record_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/record"
)

// TestStopOnFullDisk: that a pod was told to stop is recorded also without space for it.
func TestStopOnFullDisk(t *testing.T) {
	roottest.Require(t)
	root := t.TempDir()
	if err := unix.Mount("full", root, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	s, p := record.Open(root, t.TempDir()), pod("web")
	start(t, s, p.Name)
	filler := filepath.Join(root, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	if _, err := s.Update(p.UID, func(r *record.Pod) error { r.Ready = true; return nil }); err == nil {
		t.Fatal("a record was written on a full disk")
	}
	if err := s.Stop(p.UID); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*record.Store{"this process": s, "another": record.Open(root, t.TempDir())} {
		if r, err := s.Load(p.UID); err != nil || r.Failed == nil || r.Failed.Reason != record.ReasonStopped {
			t.Errorf("%s: %+v, %v; want a pod that was stopped", name, r, err)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Update(p.UID, func(r *record.Pod) error { r.Failed = nil; return nil }); err != nil || r.Failed != nil {
		t.Errorf("after the next write: %+v, %v", r, err)
	}
	if r, err := s.Load(p.UID); err != nil || r.Failed != nil {
		t.Errorf("after the next write: %+v, %v", r, err)
	}
}
