package shimbinary

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestSweep(t *testing.T) {
	t.Parallel()
	bin, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := func(c string) string { return filepath.Join(bin, strings.Repeat(c, 64), Program) }
	put := func(path string) string {
		from, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = from.Close() }()
		if err := install(path, from, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		return path
	}
	held, run, recorded, old := name("a"), put(name("b")), put(name("c")), put(name("d"))
	path, release, err := hold(bin, func(string) (string, error) { return put(held), nil })
	if err != nil || path != held {
		t.Fatalf("hold: %q, %v", path, err)
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
	sweep := func() {
		t.Helper()
		if err := Sweep(bin, func(path string) bool { return path == recorded }); err != nil {
			t.Fatal(err)
		}
	}
	there := func(path string) bool { _, err := os.Stat(filepath.Dir(path)); return err == nil }
	sweep()
	if !there(held) || !there(run) || !there(recorded) || there(old) {
		t.Errorf("held %t, run %t, recorded %t, old %t", there(held), there(run), there(recorded), there(old))
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	sweep()
	if there(held) || there(run) || !there(recorded) {
		t.Errorf("later: held %t, run %t, recorded %t", there(held), there(run), there(recorded))
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
	path := filepath.Join(bin, strings.Repeat("a", 64), Program)
	tries := 0
	got, release, err := hold(bin, func(string) (string, error) {
		tries++
		if tries == 1 {
			return path, nil // and swept
		}
		return path, install(path, strings.NewReader("x"), func() error { return nil })
	})
	if err != nil || got != path || tries != 2 {
		t.Errorf("%q after %d tries, %v", got, tries, err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
