package cmd_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runonce/cmd"
)

const trapPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: traps}\nspec:\n  hostNetwork: true\n" +
	"  containers: [{name: main, image: \"localhost/box:1\", args: [trap]}]\n"

// TestOCIRuntime: pods run with crun where it works, or with the runtime of the flag, and keep that.
func TestOCIRuntime(t *testing.T) {
	roottest.WithCrun(t, func(t *testing.T) {
		m := newMachine(t, boxImages(t))
		dir := podDir(t, trapPod)
		if plan := m.once(t, "plan", "-o", "wide", dir); !strings.Contains(plan, "/crun, since it works on this machine, and is faster than runc\n") {
			t.Error(plan)
		}
		m.once(t, "run", dir)
		states, err := filepath.Glob(filepath.Join(m.dir, "state/runc/*/*/status"))
		if err != nil || len(states) != 1 {
			t.Errorf("states of crun %q, %v; want one", states, err)
		}
		tried := filepath.Join(m.dir, "root/oci-runtimes.json")
		if text, err := os.ReadFile(tried); err != nil || !bytes.Contains(text, []byte("/crun\"")) {
			t.Errorf("%s: %q, %v", tried, text, err)
		}
		m.once(t, "down", dir)
		m.once(t, "run", "--oci-runtime", "runc", dir)
		ofRunc := func(when string) {
			t.Helper()
			if states, err = filepath.Glob(filepath.Join(m.dir, "state/runc/*/*/state.json")); err != nil || len(states) != 1 {
				t.Errorf("%s: states of runc %q, %v; want one", when, states, err)
			}
		}
		ofRunc("started")
		pids, err := filepath.Glob(filepath.Join(m.dir, "state/io.containerd.runtime.v2.task/*/main-*/init.pid"))
		if err != nil || len(pids) != 1 {
			t.Fatalf("processes %q, %v; want one", pids, err)
		}
		pid, err := strconv.Atoi(read(t, pids[0]))
		if err := errors.Join(err, syscall.Kill(pid, syscall.SIGKILL)); err != nil {
			t.Fatal(err)
		}
		if out := m.once(t, "run", dir); strings.Contains(out, "earlier run") {
			t.Errorf("the container was not restarted:\n%s", out)
		}
		ofRunc("restarted")
	})
}

// TestOCIRuntimeRefuses: a runtime that does not work here is exit code 4 and one line, before
// anything starts.
func TestOCIRuntimeRefuses(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	dir := podDir(t, trapPod)
	program := filepath.Join(t.TempDir(), "strange")
	script := "#!/bin/sh\necho cgroups in hybrid mode not supported >&2\nexit 1\n"
	exectest.Write(t, program, script)
	want := "runonce: container engine: the OCI runtime " + program +
		" cannot create a container on this machine: cgroups in hybrid mode not supported: use runc (--oci-runtime runc), or boot with systemd.unified_cgroup_hierarchy=1\n"
	for _, command := range []string{"run", "plan"} {
		var out, errs bytes.Buffer
		world := m.world
		world.Stdout, world.Stderr, world.Stdin = &out, &errs, strings.NewReader("")
		args := slices.Concat([]string{"runonce", command, "--oci-runtime", program, dir}, m.flags)
		if code := cmd.Main(testContext(), args, world); code != 4 || errs.String() != want || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q, %q; want 4 and %q", command, code, &errs, &out, want)
		}
	}
	if _, err := os.Stat(filepath.Join(m.dir, "root/oci-runtimes.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is recorded: %v", err)
	}
	m.once(t, "run", dir)
}
