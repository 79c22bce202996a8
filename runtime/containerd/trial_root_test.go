package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runtime/containerd"
)

// tried is an OCI runtime that logs its calls, and an engine's directories.
type tried struct {
	testDirs
	program, calls string
	machine        string
}

func newTried(t *testing.T) *tried {
	t.Helper()
	p := newTestDirs(t)
	return &tried{testDirs: p, program: filepath.Join(p.dir, "other"), calls: filepath.Join(p.dir, "calls"), machine: "here"}
}

// write makes the runtime the machine's runc after the lines of shell.
func (r *tried) write(t *testing.T, lines string) {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s\n%s\nexec %s \"$@\"\n", r.calls, lines, runc)
	exectest.Write(t, r.program, script)
}

// open opens and closes an engine, and returns the commands that the runtime has got.
func (r *tried) open(t *testing.T) (calls string, err error) {
	t.Helper()
	o := r.options()
	o.RuncPath = r.program
	spec := testSpec(t, filepath.Base(r.dir), nil)
	o.Trial = &containerd.Trial{Machine: r.machine, Spec: func(context.Context) (*specs.Spec, func() error, error) {
		return spec, func() error { return nil }, nil
	}}
	if err := os.RemoveAll(r.calls); err != nil {
		t.Fatal(err)
	}
	e, err := containerd.Open(context.WithoutCancel(t.Context()), o)
	if err == nil {
		closeEngine(t, e)
	}
	left, serr := os.ReadDir(filepath.Join(r.dir, "root/trial"))
	if undeletable := err != nil && strings.Contains(err.Error(), "undeletable"); (serr == nil) != undeletable {
		t.Errorf("left of the trial: %v", left)
	}
	text, rerr := os.ReadFile(r.calls)
	if rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		t.Fatal(rerr)
	}
	var commands []string
	for line := range strings.Lines(string(text)) {
		commands = append(commands, strings.Fields(line)[2])
	}
	return strings.Join(commands, " "), err
}

// TestTrial: an OCI runtime is tried once, and again after a change of it or of the machine.
func TestTrial(t *testing.T) {
	r := newTried(t)
	want := func(what, want string) {
		t.Helper()
		if got, err := r.open(t); err != nil || got != want {
			t.Errorf("%s: commands %q, %v; want %q", what, got, err, want)
		}
	}
	r.write(t, "")
	want("first use", "create delete")
	want("second use", "")
	r.write(t, "# changed")
	want("another program", "create delete")
	r.machine = "there"
	want("another machine", "create delete")
	want("the same again", "")
	if err := os.WriteFile(filepath.Join(r.dir, "root/oci-runtimes.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("damaged record", "create delete")
}

// TestTrialOfLeftover: what a killed process has left of its trial is removed by the next one.
func TestTrialOfLeftover(t *testing.T) {
	r := newTried(t)
	r.write(t, "")
	leave := containerd.LeaveTrial(t.Context(), r.program, filepath.Join(r.dir, "root"), testSpec(t, filepath.Base(r.dir), nil))
	if leave != nil {
		t.Fatal(leave)
	}
	if got, err := r.open(t); err != nil || got != "delete create delete" {
		t.Errorf("commands %q, %v", got, err)
	}
}

// TestTryRuntime: any OCI runtime is tried, each time, and leaves nothing. What it has logged is not quoted.
func TestTryRuntime(t *testing.T) {
	r := newTried(t)
	dir, spec := filepath.Join(r.dir, "once"), testSpec(t, filepath.Base(r.dir), nil)
	o := containerd.Options{RuncPath: r.program, Trial: &containerd.Trial{Spec: func(context.Context) (*specs.Spec, func() error, error) {
		return spec, func() error { return nil }, nil
	}}}
	r.write(t, "")
	for range 2 {
		if _, err := containerd.TryRuntime(t.Context(), o, dir); err != nil {
			t.Error(err)
		}
	}
	r.write(t, `case $3 in create) echo 'time="now" level=error msg="runc create failed: it is \\"odd\\""' >&2; exit 1;; esac`)
	if _, err := containerd.TryRuntime(t.Context(), o, dir); err == nil || !strings.Contains(err.Error(), `it is "odd": install another version`) {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left of the trial: %v", err)
	}
	o.RuncPath = filepath.Join(r.dir, "absent")
	if _, err := containerd.TryRuntime(t.Context(), o, dir); !errors.Is(err, containerd.ErrUnusable) {
		t.Error(err)
	}
}

// TestTrialFails: the error has the runtime's words and what to do, in one line, and the runtime is
// tried again until it works.
func TestTrialFails(t *testing.T) {
	r := newTried(t)
	for says, advice := range map[string]string{
		"cgroups in hybrid mode not supported, drop all controllers from cgroupv2": "boot with systemd.unified_cgroup_hierarchy=1",
		"unknown version specified": "install a newer version of it",
		"something else":            "install another version of it",
	} {
		r.write(t, "case $3 in create) echo first >&2; echo '"+says+"' >&2; exit 1;; esac")
		for range 2 {
			_, err := r.open(t)
			if !errors.Is(err, containerd.ErrUnusable) || !strings.Contains(err.Error(), "the OCI runtime "+r.program+" cannot create a container on this machine: "+says+": ") ||
				!strings.Contains(err.Error(), advice) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: error %v, want advice %q", says, err, advice)
			}
		}
	}
	r.write(t, "case $3 in delete) echo undeletable >&2; exit 1;; esac")
	if _, err := r.open(t); err == nil || !strings.Contains(err.Error(), ": undeletable: ") {
		t.Errorf("deletion that fails: %v", err)
	}
	r.write(t, "")
	if got, err := r.open(t); err != nil || got != "delete create delete" {
		t.Errorf("once it works: commands %q, %v", got, err)
	}
}
