package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// The rounds of a failed run can be repeated with its seed, which is in the error: the pods and
// faults are the same, their moments not quite.
func TestChaos(t *testing.T) {
	roottest.Require(t)
	chaos(t,
		options{engine: embedded, rounds: 18, seed: 1},
		options{engine: string(daemon.Current), rounds: 6, seed: 2},
		options{engine: string(daemon.Debian), rounds: 6, seed: 3},
	)
}

func TestChaosOnCrun(t *testing.T) {
	roottest.WithCrun(t, func(t *testing.T) {
		chaos(t, options{engine: embedded, runtime: "crun", rounds: 12, seed: 4})
	})
}

func chaos(t *testing.T, all ...options) {
	t.Helper()
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "runonce")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	for _, o := range all {
		t.Run(o.engine, func(t *testing.T) {
			o.program, o.parallel, o.out = program, 3, t.Output()
			if err := run(context.WithoutCancel(t.Context()), o); err != nil {
				t.Fatal(err)
			}
		})
	}
}
