package enginetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/runtime/engine"
)

// conformFiles: what is written to the files of a container is there for whoever opens them later, also when the
// container has ended, and its mounts are there as it has them.
func conformFiles(t *testing.T, s Subject) {
	c := s.Config(t, "pod1", "web", "sleep")
	volume := t.TempDir()
	names := []string{"kept"}
	for _, access := range []string{"rw", "ro"} {
		if !s.Mounts {
			break
		}
		names = append(names, access+"/kept")
		c.Spec.Mounts = append(c.Spec.Mounts, specs.Mount{Destination: "/" + access, Type: "bind", Source: volume, Options: []string{"rbind", access}})
	}
	if _, err := s.Engine.Files(t.Context(), c.ID, false); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("an absent container: %v", err)
	}
	if err := s.Engine.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"running", "ended"} {
		if state == "ended" {
			if err := s.Engine.Stop(t.Context(), c.ID, unix.SIGTERM, 0); err != nil {
				t.Fatal(err)
			}
		}
		within(t, s, c.ID, true, func(root string) {
			for _, name := range names {
				err := os.WriteFile(filepath.Join(root, name), []byte(state), 0o600)
				if (filepath.Dir(name) == "ro") != errors.Is(err, unix.EROFS) {
					t.Errorf("%s: writing %s: %v", state, name, err)
				}
			}
		})
		within(t, s, c.ID, false, func(root string) {
			for _, name := range names {
				if got, err := os.ReadFile(filepath.Join(root, name)); string(got) != state {
					t.Errorf("%s: %s has %q, %v", state, name, got, err)
				}
			}
		})
		if got, err := os.ReadFile(filepath.Join(volume, "kept")); s.Mounts && string(got) != state {
			t.Errorf("%s: the volume has %q, %v", state, got, err)
		}
	}
	if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Engine.Files(t.Context(), c.ID, false); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a removed container: %v", err)
	}
}

// within calls f with a path of the root directory of a container.
func within(t *testing.T, s Subject, id string, write bool, f func(root string)) {
	t.Helper()
	opened, err := s.Engine.Files(t.Context(), id, write)
	if err != nil {
		t.Fatalf("Files: %v", err)
	}
	f(fmt.Sprintf("/proc/self/fd/%d", opened.Root.Fd()))
	if err := opened.Close(); err != nil {
		t.Errorf("closing the files: %v", err)
	}
	if _, err := opened.Root.Stat(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the files are still open: %v", err)
	}
}
