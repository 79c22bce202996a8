package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/testing/exectest"
)

func TestFindProgram(t *testing.T) {
	own, other := t.TempDir(), t.TempDir()
	t.Setenv("PATH", own)
	dirs := []string{other}
	want := func(name, path, words string) {
		t.Helper()
		got, err := findProgram(name, dirs)
		if got != path || (err != nil) != (words != "") || err != nil && (!strings.Contains(err.Error(), words) || !errors.Is(err, ErrUnusable)) {
			t.Errorf("findProgram(%q): %q, %v, want %q and an error with %q", name, got, err, path, words)
		}
	}
	write := func(path string, mode os.FileMode) string {
		t.Helper()
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want("crun", "", `finding the OCI runtime "crun": it is not in PATH or in `+other+": install the package crun")
	want("kata", "", `the OCI runtime "kata": it is not in PATH or in `+other)
	want("/no/runc", "", "stat /no/runc: no such file")
	crun := write(filepath.Join(other, "crun"), 0o755)
	want("crun", crun, "")
	want(crun, crun, "")
}

// TestNoDefaultWorks: where crun is the default only because there is no runc, the error has both
// reasons.
func TestNoDefaultWorks(t *testing.T) {
	own, dirs := t.TempDir(), programDirs
	programDirs = []string{"/nowhere"}
	t.Cleanup(func() { programDirs = dirs })
	t.Setenv("PATH", own)
	crun := filepath.Join(own, "crun")
	script := "#!/bin/sh\necho unknown version specified >&2\nexit 1\n"
	exectest.Write(t, crun, script)
	spec := func(context.Context) (*specs.Spec, func() error, error) {
		return &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}, func() error { return nil }, nil
	}
	for name, want := range map[string]string{
		"": "no OCI runtime: runc is not in PATH or in /nowhere, and " + crun +
			" cannot create a container on this machine: unknown version specified: install the package runc",
		"crun": "the OCI runtime " + crun +
			" cannot create a container on this machine: unknown version specified: install a newer version of it, or use runc (--oci-runtime runc)",
	} {
		o := Options{RuncPath: name, Root: t.TempDir(), State: t.TempDir(), Trial: &Trial{Spec: spec}}
		err := o.findRuntimes()
		if err == nil {
			_, err = o.tryRuntimes(t.Context())
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, ErrUnusable) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
		o.StartsNothing = true
		if _, err := o.tryRuntimes(t.Context()); err != nil {
			t.Errorf("%q: without a start: %v", name, err)
		}
	}
}

// TestTrialImpossible: what prevents a trial is not the runtime's fault.
func TestTrialImpossible(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "other")
	exectest.Write(t, program, "#!/bin/sh\n")
	o := Options{
		Root: t.TempDir(), Handlers: []Handler{{Name: DefaultHandler, Binary: program}},
		Trial: &Trial{Spec: func(context.Context) (*specs.Spec, func() error, error) { return nil, nil, errors.New("no cgroups") }},
	}
	want := "trying the OCI runtime " + program + ": no cgroups"
	if _, err := o.tryRuntimes(t.Context()); err == nil || err.Error() != want || !errors.Is(err, ErrUnusable) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTrialInterrupted: an interrupt is not the runtime's fault either, nor does it leave the
// container.
func TestTrialInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "other")
	exectest.Write(t, program, "#!/bin/sh\ncase $3 in create) exec sleep 1000;; esac\n")
	ctx, cancel := context.WithCancel(t.Context())
	spec := func(context.Context) (*specs.Spec, func() error, error) {
		cancel()
		return &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}, func() error { return nil }, nil
	}
	o := Options{Root: dir, Handlers: []Handler{{Name: DefaultHandler, Binary: program}}, Trial: &Trial{Spec: spec}}
	if _, err := o.tryRuntimes(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnusable) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if _, err := os.Stat(filepath.Join(dir, trialDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}

// TestFeaturesOfOlderCrun: the features of versions that have no such command are known.
func TestFeaturesOfOlderCrun(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"crun version 1.8.1\ncommit: f8a\nspec: 1.0.0\n+SYSTEMD +SELINUX +APPARMOR +CAP +SECCOMP +EBPF +YAJL\n": `{"mountOptions":["rro"],"linux":{"seccomp":{"enabled":true}}}`,
		"crun version 1.4\n+SYSTEMD\n":      `{"mountOptions":["rro"],"linux":{"seccomp":{"enabled":false}}}`,
		"crun version 1.3\n+SECCOMP\n":      "",
		"crun version 0.20\n+SECCOMP\n":     "",
		"runc version 1.0.0-rc9\nspec: 1\n": "",
		"":                                  "",
	} {
		program := filepath.Join(t.TempDir(), "crun")
		exectest.Write(t, program, "#!/bin/sh\n[ \"$1\" = --version ] || exit 1\ncat <<END\n"+version+"END\n")
		if out, err := Features(t.Context(), program); string(out) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %s, %v; want %s", version, out, err, want)
		}
	}
}
