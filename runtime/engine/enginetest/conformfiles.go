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
	if s.Mounts {
		names = append(names, "rw/kept", "ro/kept")
		c.Spec.Mounts = append(c.Spec.Mounts,
			specs.Mount{Destination: "/rw", Type: "bind", Source: volume, Options: []string{"rbind", "rw"}},
			specs.Mount{Destination: "/ro", Type: "bind", Source: volume, Options: []string{"rbind", "ro"}})
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
		writeAndRead(t, s, c.ID, state, names)
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

// writeAndRead writes a text to files of a container, except those below the directory ro, and reads all.
func writeAndRead(t *testing.T, s Subject, id, text string, names []string) {
	t.Helper()
	within(t, s, id, true, func(root string) {
		for _, name := range names {
			err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600)
			if (filepath.Dir(name) == "ro") != errors.Is(err, unix.EROFS) {
				t.Errorf("%s: writing %s: %v", text, name, err)
			}
		}
	})
	within(t, s, id, false, func(root string) {
		for _, name := range names {
			if got, err := os.ReadFile(filepath.Join(root, name)); string(got) != text {
				t.Errorf("%s: %s has %q, %v", text, name, got, err)
			}
		}
	})
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
