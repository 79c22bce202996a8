package lastrun

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/runonce/report"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t testing.TB, root, command string, paths ...string) *Recording {
	t.Helper()
	r, err := Begin(root, command, paths)
	must(t, err)
	t.Cleanup(r.release)
	return r
}

// state is what is known of the last run of the paths.
func state(t testing.TB, root string, paths ...string) string {
	t.Helper()
	r, err := Load(root, paths)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "unknown"
	case err != nil:
		return err.Error()
	case r.HasResult():
		return fmt.Sprintf("%s exit code %d, alive %t", r, r.ExitCode, r.Alive)
	}
	return fmt.Sprintf("%s no result, alive %t", r, r.Alive)
}

func saved(code int) report.Saved { return report.New(nil, code, 0).Save(nil) }

// TestStates: a run has a result when it has ended, and none while it goes on or when it was killed.
func TestStates(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	want := func(want string) {
		t.Helper()
		if got := state(t, root, "/b", "/a"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	want("unknown")
	first := begin(t, root, "run", "/a", "/b", "/a")
	want("run of /a /b no result, alive true")
	must(t, first.Report(saved(1), true))
	must(t, first.End(1))
	want("run of /a /b exit code 1, alive false")

	killed := begin(t, root, "run", "/b", "/a")
	must(t, killed.lock.Close())
	killed.lock = nil
	want("run of /a /b no result, alive false")

	// A run that has ended after another one has begun is not the last one. Its exit code may not be that of its report.
	early, late := begin(t, root, "run", "/a", "/b"), begin(t, root, "run", "/a", "/b")
	must(t, late.Report(saved(0), true))
	must(t, late.End(1))
	must(t, early.Report(saved(3), true))
	must(t, early.End(3))
	want("run of /a /b exit code 1, alive false")

	// A watch has one while it goes on, but none when it was killed.
	watch := begin(t, root, "watch", "/a", "/b")
	want("watch of /a /b no result, alive true")
	must(t, watch.Report(saved(3), false))
	want("watch of /a /b exit code 3, alive true")
	watch.release()
	want("watch of /a /b no result, alive false")

	if left, err := filepath.Glob(filepath.Join(root, dir, runPrefix+"*")); len(left) > 0 || err != nil {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestDamaged: what a loss of power has damaged is no older report, and a file of a newer version is not misunderstood.
func TestDamaged(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := begin(t, root, "run", "/a")
	must(t, r.Report(saved(0), true))
	must(t, r.End(0))
	path := pathOf(root, []string{"/a"})
	must(t, os.WriteFile(path, nil, 0o600))
	if got := state(t, root, "/a"); got != "run of /a no result, alive false" {
		t.Error(got)
	}
	must(t, os.WriteFile(path, []byte(`{"version": 2}`), 0o600))
	if got := state(t, root, "/a"); !strings.Contains(got, "newer version") {
		t.Error(got)
	}
}

// TestNotWritable: when a run cannot be noted, the report of the one before is gone.
func TestNotWritable(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	before := begin(t, root, "run", "/a")
	must(t, before.Report(saved(0), true))
	must(t, before.End(0))
	must(t, os.Mkdir(pathOf(root, []string{"/a"})+".tmp", 0o700)) // where the file is written first
	r, err := Begin(root, "run", []string{"/a"})
	if r != nil || err == nil || !strings.Contains(err.Error(), "noting that the run begins") {
		t.Errorf("%v, error %v", r, err)
	}
	if got := state(t, root, "/a"); got != "unknown" {
		t.Error(got)
	}
	must(t, errors.Join(r.Report(saved(0), true), r.End(0))) // of nil
}

// TestBounded: the newest are kept, and those of runs that go on.
func TestBounded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	watch := begin(t, root, "watch", "/watched")
	must(t, os.Chtimes(pathOf(root, watch.now.Paths), time.Time{}, time.Now().Add(-time.Hour)))
	for i := range maxInputs + 3 {
		r := begin(t, root, "run", fmt.Sprintf("/%d", i))
		must(t, r.Report(saved(0), true))
		must(t, r.End(0))
		at := time.Now().Add(time.Duration(i-100) * time.Second)
		must(t, os.Chtimes(pathOf(root, r.now.Paths), at, at))
	}
	for path, want := range map[string]bool{"/watched": true, "/0": false, "/2": false, "/3": true, fmt.Sprintf("/%d", maxInputs+2): true} {
		if got := state(t, root, path) != "unknown"; got != want {
			t.Errorf("%s: kept %t", path, got)
		}
	}
	must(t, os.Truncate(pathOf(root, []string{"/20"}), maxSize))
	must(t, os.Chtimes(pathOf(root, []string{"/20"}), time.Time{}, time.Now().Add(-time.Second)))
	must(t, begin(t, root, "run", "/new").End(1))
	for path, want := range map[string]bool{"/watched": true, "/20": false, "/21": true} {
		if got := state(t, root, path) != "unknown"; got != want {
			t.Errorf("%s: kept %t", path, got)
		}
	}
	must(t, Clear(root))
	if all, err := All(root); err != nil || len(all) != 1 || all[0].String() != "watch of /watched" {
		t.Errorf("%v %v", all, err)
	}
	watch.release()
	must(t, Clear(root))
	if _, err := os.Stat(filepath.Join(root, dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// TestConclude: a killed run gets the report that somebody has made for it, once, and only if it is the last one.
func TestConclude(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	killed := begin(t, root, "run", "/a")
	must(t, Conclude(root, killed.ID(), saved(1)))
	if got, want := state(t, root, "/a"), "run of /a no result, alive true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	must(t, killed.lock.Close())
	killed.lock = nil
	must(t, Conclude(root, "run-other", saved(3)))
	must(t, Conclude(root, killed.ID(), saved(1)))
	must(t, Conclude(root, killed.ID(), saved(4)))
	if got, want := state(t, root, "/a"), "run of /a exit code 1, alive false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if id := (*Recording)(nil).ID(); id != "" {
		t.Errorf("the ID of no run is %q", id)
	}
}
