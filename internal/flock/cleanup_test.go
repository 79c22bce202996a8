package flock

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var cleanup = &Cleanup{Command: []string{"program", "down"}, Objects: []string{"Service a/b"}}

// create makes the file of a run in the directory.
func create(t *testing.T, dir string, c *Cleanup) *os.File {
	t.Helper()
	f, err := CreateRun(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFollowRun: the command of a run is executed once that was killed, until it has removed the file, and at a time by one of
// those who follow the run.
func TestFollowRun(t *testing.T) {
	t.Parallel()
	f := create(t, t.TempDir(), cleanup)
	var commands [][]string
	var working sync.Mutex
	var followers sync.WaitGroup
	for range 5 {
		followers.Go(func() {
			err := FollowRun(f.Name(), func(command []string, inherits *os.File) error {
				if !working.TryLock() {
					t.Error("two at a time")
					return nil
				}
				defer working.Unlock()
				commands = append(commands, command)
				if inherits == nil {
					t.Error("no lock to inherit")
				}
				return os.Remove(f.Name())
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	working.Lock()
	if len(commands) > 0 {
		t.Error("cleaned up while the run lives")
	}
	working.Unlock()
	if err := f.Close(); err != nil { // as a killed process does
		t.Fatal(err)
	}
	followers.Wait()
	if diff := cmp.Diff([][]string{{"program", "down"}}, commands); diff != "" {
		t.Error(diff)
	}
}

// TestFollowRunInVain: nothing is done for a run that has ended by itself, removes nothing or was killed while it began.
func TestFollowRunInVain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ended := create(t, dir, cleanup)
	plain := create(t, dir, nil)
	cutOff := create(t, dir, nil)
	_, err := cutOff.WriteString(`{"command":["pro`)
	if err := errors.Join(err, os.Remove(ended.Name()), ended.Close(), plain.Close(), cutOff.Close()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{ended.Name(), plain.Name(), cutOff.Name(), filepath.Join(dir, "none", "run-1")} {
		err := FollowRun(path, func([]string, *os.File) error {
			t.Errorf("%s: cleaned up", path)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestFollowRunAgain: a command that fails is tried again.
func TestFollowRunAgain(t *testing.T) {
	t.Parallel()
	f := create(t, t.TempDir(), cleanup)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	calls := 0
	err := FollowRun(f.Name(), func([]string, *os.File) error {
		if calls++; calls == 1 {
			return errors.New("killed")
		}
		return os.Remove(f.Name())
	})
	if err != nil || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestReadCleanup(t *testing.T) {
	t.Parallel()
	f := create(t, t.TempDir(), cleanup)
	got, err := ReadCleanup(f.Name())
	if diff := cmp.Diff(*cleanup, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
