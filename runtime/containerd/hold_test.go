package containerd

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

// TestHold: of other versions only those go that nobody needs, and none while another process holds
// one.
func TestHold(t *testing.T) {
	t.Parallel()
	bin, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := func(c string) string { return filepath.Join(bin, strings.Repeat(c, 64), protocol.Program) }
	unpack := func(path string) (string, error) {
		from, err := os.Open("/proc/self/exe")
		if err != nil {
			return "", err
		}
		defer func() { _ = from.Close() }()
		return path, install(path, from, func() error { return nil })
	}
	own, run, recorded, old := name("a"), name("b"), name("c"), name("d")
	for _, path := range []string{run, recorded, old} {
		if _, err := unpack(path); err != nil {
			t.Fatal(err)
		}
	}
	process := exec.CommandContext(t.Context(), run, "-test.run", "^TestStay$")
	process.Env = append(os.Environ(), "PAYLOAD_TEST_STAY=1")
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	take := func(own string) (release func() error) {
		t.Helper()
		path, release, err := hold(bin, func(string) (string, error) { return unpack(own) },
			func() (map[string]bool, error) { return map[string]bool{recorded: true}, nil }, slog.New(slog.DiscardHandler))
		if err != nil || path != own {
			t.Fatalf("hold: %q, %v", path, err)
		}
		return release
	}
	there := func(path string) bool { _, err := os.Stat(filepath.Dir(path)); return err == nil }
	release := take(own)
	if !there(own) || !there(run) || !there(recorded) || there(old) {
		t.Errorf("own %t, run %t, recorded %t, old %t", there(own), there(run), there(recorded), there(old))
	}
	if err := errors.Join(in.Close(), process.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := take(old)(); err != nil || !there(own) || !there(run) {
		t.Errorf("while another process holds one: own %t, run %t, %v", there(own), there(run), err)
	}
	if err := errors.Join(release(), take(old)()); err != nil || there(own) || there(run) || !there(recorded) || !there(old) {
		t.Errorf("later: own %t, run %t, recorded %t, new %t, %v", there(own), there(run), there(recorded), there(old), err)
	}
}

// TestStay runs in another process, an old program, until its input ends.
func TestStay(t *testing.T) {
	if os.Getenv("PAYLOAD_TEST_STAY") == "" {
		t.Skip("no other test has started it")
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
}

// TestHoldAfterSweep: a program that is swept just before it is held is unpacked again.
func TestHoldAfterSweep(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	path := filepath.Join(bin, strings.Repeat("a", 64), protocol.Program)
	tries := 0
	got, release, err := hold(bin, func(string) (string, error) {
		tries++
		if tries == 1 {
			return path, nil // and swept
		}
		return path, install(path, strings.NewReader("x"), func() error { return nil })
	}, nil, slog.New(slog.DiscardHandler))
	if err != nil || got != path || tries != 2 {
		t.Errorf("%q after %d tries, %v", got, tries, err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
