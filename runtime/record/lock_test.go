package record

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/internal/testing/flocktest"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// lockedElsewhere makes another process lock the file until the test ends.
func lockedElsewhere(t *testing.T, path string) {
	t.Helper()
	program, err := exec.LookPath("flock")
	if err != nil {
		roottest.Lacks(t, "the program flock: %v", err)
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
		`^waiting for process \d+ \(flock .*\), which has been working on pod default/a since 2\d{3}-`: func(ctx context.Context, s *Store) error {
			_, err := s.Lock(ctx, "uid-a")
			return err
		},
		`^waiting for the run of process \d+ \(flock .*\) to plan and to stop pods, which it has been doing since 2\d{3}-`: func(ctx context.Context, s *Store) error { return s.NewRun().Enter(ctx) },
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
			if len(told) != 1 || !regexp.MustCompile(want).MatchString(told[0]) {
				t.Errorf("told %q, want %q once", told, want)
			}
		})
	}
}
