package protocol

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/disk"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestEndOnAFullDisk: an end is recorded when there is neither space nor a file left.
func TestEndOnAFullDisk(t *testing.T) {
	roottest.Require(t)
	for _, options := range []string{"size=64k", "nr_inodes=10"} {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		path := filepath.Join(dir, "a.json")
		want := Record{ContainerID: "a", StartedAt: time.Unix(1, 0).UTC()}
		if err := Reserve(path); err != nil {
			t.Fatal(err)
		}
		if err := want.Write(path); err != nil {
			t.Fatal(err)
		}
		var full error
		for i := 0; full == nil; i++ {
			full = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, 1024), 0o600)
		}
		want.FinishedAt, want.ExitCode = time.Unix(2, 0).UTC(), 7
		if err := want.Write(path); err != nil {
			t.Errorf("%s, %v: %v", options, full, err)
		}
		if got, err := Read(path); err != nil || got != want {
			t.Errorf("%s: read %+v, %v", options, got, err)
		}
		if _, err := os.Stat(ReservePath(path)); err == nil {
			t.Errorf("%s: the reserved file is left", options)
		}
	}
}

// TestPowerFailure: a start and an exit stay known.
func TestPowerFailure(t *testing.T) {
	for _, kind := range disk.Types() {
		t.Run(kind, func(t *testing.T) {
			roottest.Require(t)
			dir := t.TempDir()
			d, err := disk.Make(t.Context(), filepath.Join(t.TempDir(), "disk"), dir, kind)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			started := Record{ContainerID: "a", StartedAt: time.Unix(1, 0).UTC()}
			ended := Record{ContainerID: "b", StartedAt: time.Unix(1, 0).UTC(), FinishedAt: time.Unix(2, 0).UTC(), ExitCode: 7}
			path := func(r Record) string { return filepath.Join(dir, r.ContainerID+".json") }
			for _, r := range []Record{started, ended} {
				if err := errors.Join(Reserve(path(r)), r.Write(path(r))); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(d.CutPower(), unix.Unmount(dir, unix.MNT_DETACH), d.Restore(t.Context())); err != nil {
				t.Fatal(err)
			}
			for _, want := range []Record{started, ended} {
				if got, err := Read(path(want)); err != nil || got != want {
					t.Errorf("read %+v, %v; want %+v", got, err, want)
				}
			}
		})
	}
}
