package record_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/testing/disk"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/record"
)

// afterPowerFailure returns the records that a loss of power leaves of what act has done, which is the
// last that happens on the disk. Nothing else writes to it, and so has the file system write more than
// it was told to.
func afterPowerFailure(t *testing.T, kind string, act func(s *record.Store) error) *record.Store {
	t.Helper()
	root := t.TempDir()
	d, err := disk.Make(t.Context(), filepath.Join(t.TempDir(), "disk"), root, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	if err := act(record.Open(root, t.TempDir())); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.CutPower(), unix.Unmount(root, unix.MNT_DETACH), d.Restore(t.Context())); err != nil {
		t.Fatal(err)
	}
	return record.Open(root, t.TempDir())
}

// syncNames has the file system write the names of all files, but not what they contain.
func syncNames(s *record.Store) error {
	name := filepath.Join(s.Root(), "new")
	return errors.Join(os.Mkdir(name, 0o700), atomicfile.Sync(name), atomicfile.Sync(s.Root()))
}

// TestPowerFailure: what has been recorded stays so, and what was removed stays away.
func TestPowerFailure(t *testing.T) {
	web := pod("web")
	started := func(p *record.Pod) bool { return !p.Started.IsZero() && p.Failed == nil }
	for name, tt := range map[string]struct {
		act  func(s *record.Store) error
		want func(*record.Pod) bool // nil for no record
	}{
		"a start": {func(*record.Store) error { return nil }, started},
		// As before the first plugin is called, which may leave something on another disk.
		"a change": {func(s *record.Store) error {
			_, err := s.Update(web.UID, func(p *record.Pod) error { p.Attachment = []byte("{}"); return nil })
			return err
		}, func(p *record.Pod) bool { return string(p.Attachment) == "{}" }},
		"a change among others": {func(s *record.Store) error {
			_, err := s.UpdateAmong(web.UID, func(p *record.Pod, _ []*record.Pod) error { p.FirstUserID = 1 << 16; return nil })
			return err
		}, func(p *record.Pod) bool { return p.FirstUserID == 1<<16 }},
		"a stop": {func(s *record.Store) error {
			return s.Stop(web.UID)
		}, func(p *record.Pod) bool { return p.Failed != nil && p.Failed.Reason == record.ReasonStopped }},
		"an outcome": {func(s *record.Store) error {
			return s.Conclude(web.UID, &record.Outcome{Outcome: "Succeeded"})
		}, func(p *record.Pod) bool { return p.Outcome != nil }},
		"a removal": {func(s *record.Store) error { return s.Remove(web.UID) }, nil},
		"a reset":   {func(s *record.Store) error { return s.Reset(web.UID) }, func(p *record.Pod) bool { return p.Removed }},
		// What the machine's restart ends anyway need not be on disk, but what was there before must be.
		"a passing change": {func(s *record.Store) error {
			_, err := s.Update(web.UID, func(p *record.Pod) error {
				p.StartedUp = map[string]string{"main": strings.Repeat("long", 1<<16)}
				return nil
			})
			return errors.Join(err, syncNames(s))
		}, started},
		// A run ends with the machine. It only must not damage the records of what it has admitted.
		"a plan": {func(s *record.Store) error {
			r := s.NewRun()
			return errors.Join(r.Enter(t.Context()), r.Reserve([]*v1.Pod{web, pod("other")}), syncNames(s))
		}, started},
	} {
		for _, kind := range disk.Types() {
			t.Run(name+" on "+kind, func(t *testing.T) {
				roottest.Require(t)
				s := afterPowerFailure(t, kind, func(s *record.Store) error {
					start(t, s, web.Name)
					return tt.act(s)
				})
				p, err := s.Load(web.UID)
				if tt.want == nil {
					if !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%+v, %v; want none", p, err)
					}
					return
				}
				if err != nil || !tt.want(p) {
					t.Errorf("%+v, %v", p, err)
				}
			})
		}
	}
}
