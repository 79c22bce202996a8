package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/exectest"
)

// shimScript stands for the shim: it writes down how it was started and stays.
const shimScript = `#!/bin/sh
{ echo "$@"; env; readlink /proc/self/cwd; } > "$0.out.tmp" && mv "$0.out.tmp" "$0.out"
exec sleep 60
`

func testShims(t *testing.T) Shims {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "shim")
	exectest.Write(t, program, shimScript)
	return Shims{Program: program, State: dir, Namespace: "ns"}
}

func TestEnsureStartsOneShimForAGroup(t *testing.T) {
	t.Setenv("SECRET", "not for shims")
	s := testShims(t)
	address, fresh, err := s.Ensure(t.Context(), "pod", "a")
	if err != nil || !fresh || !strings.HasPrefix(address, "ttrpc+unix:///") {
		t.Fatalf("%q %v %v", address, fresh, err)
	}
	again, fresh, err := s.Ensure(t.Context(), "pod", "b")
	if err != nil || fresh || again != address {
		t.Errorf("again: %q %v %v", again, fresh, err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	var out []byte
	for out == nil && time.Now().Before(deadline) {
		out, _ = os.ReadFile(s.Program + ".out")
	}
	for _, want := range []string{"-namespace ns -id a -address " + Socket(s.State) + " -remove-bundles\n", "TTRPC_ADDRESS=" + Socket(s.State) + ".ttrpc\n", "\n/\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if strings.Contains(string(out), "SECRET") {
		t.Errorf("the shim has the user's environment: %q", out)
	}
}

func TestEnsureFailsWithoutTheProgram(t *testing.T) {
	s := testShims(t)
	s.Program += "none"
	if address, _, err := s.Ensure(t.Context(), "pod", "a"); err == nil {
		t.Errorf("%q", address)
	}
	if left, err := os.ReadDir(shimDir(s.State)); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
