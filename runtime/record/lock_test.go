package record

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/hack/flocktest"
)

// lockedElsewhere makes another process lock the file until the test ends.
func lockedElsewhere(t *testing.T, path string) {
	t.Helper()
	program, err := exec.LookPath("flock")
	if err != nil {
		t.Skip(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	flocktest.Hold(t, "", program, path, "sh", "-c", "echo locked; read end")
}

// TestWaitsAreTold: whoever waits long for another process learns which one that is.
func TestWaitsAreTold(t *testing.T) {
	root := t.TempDir()
	enter(t, root, "a").kill(t)
	lockedElsewhere(t, filepath.Join(root, "locks", "uid-a.lock"))
	lockedElsewhere(t, filepath.Join(root, runsDir, planLock))
	for want, wait := range map[string]func(ctx context.Context, s *Store) error{
		"(flock), which works on pod default/a": func(ctx context.Context, s *Store) error {
			_, err := s.Lock(ctx, "uid-a")
			return err
		},
		"waiting for the run of process ": func(ctx context.Context, s *Store) error { return s.NewRun().Enter(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := Open(root, root)
			var told []string
			s.Notify = func(message string) { told = append(told, message) }
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := wait(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			if len(told) != 1 || !strings.Contains(told[0], want) {
				t.Errorf("told %q, want %q once", told, want)
			}
		})
	}
}
