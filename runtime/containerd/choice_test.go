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

func TestChoose(t *testing.T) {
	dir, dirs := t.TempDir(), programDirs
	programDirs = []string{"/nowhere"}
	t.Cleanup(func() { programDirs = dirs })
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	works := func(string) error { return nil }
	refuses := func(string) error { return refusal("no cgroups") }
	refusesOwn := func(program string) error {
		if strings.Contains(program, "libexec") {
			return refusal("no systemd")
		}
		return nil
	}
	breaks := func(string) error { return errors.New("no machine") }
	untried := func(string) error { return errUntried }
	const faster = ": it works on this machine, and is faster than runc"
	for _, c := range []struct {
		name      string
		installed string
		attempt   func(program string) error
		want      string // a program and why, or an error
	}{
		{"none", "", works, "no OCI runtime: neither runc nor crun is in PATH or in /nowhere, DIR/libexec: install the package runc or crun"},
		{"runc alone", "bin/runc", works, "DIR/bin/runc: crun is not installed"},
		{"crun works", "bin/runc bin/crun", works, "DIR/bin/crun" + faster},
		{"crun alone", "bin/crun", works, "DIR/bin/crun" + faster},
		{"crun that comes with the program", "bin/runc bin/crun libexec/crun", works, "DIR/libexec/crun" + faster},
		{"which does not work", "bin/runc bin/crun libexec/crun", refusesOwn, "DIR/bin/crun" + faster},
		{"and is the only one", "bin/runc libexec/crun", refusesOwn, "DIR/bin/runc: DIR/libexec/crun cannot create a container on this machine: no systemd"},
		{"crun refuses", "bin/runc bin/crun", refuses, "DIR/bin/runc: DIR/bin/crun cannot create a container on this machine: no cgroups"},
		{
			"crun alone refuses", "bin/crun", refuses,
			"no OCI runtime: runc is not in PATH or in /nowhere, DIR/libexec, and DIR/bin/crun cannot create a container on this machine: no cgroups: install the package runc",
		},
		{"trial impossible", "bin/runc bin/crun", breaks, "trying the OCI runtime DIR/bin/crun: no machine"},
		{"not tried yet", "bin/runc bin/crun", untried, "DIR/bin/crun: it is faster than runc, and will be tried before it is used"},
		{"never tried", "bin/runc bin/crun", nil, "DIR/bin/runc: crun has not been tried"},
		{"crun alone, never tried", "bin/crun", nil, "DIR/bin/crun: runc is not installed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, sub := range []string{"bin", "libexec"} {
				if err := errors.Join(os.RemoveAll(filepath.Join(dir, sub)), os.Mkdir(filepath.Join(dir, sub), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range strings.Fields(c.installed) {
				exectest.Write(t, filepath.Join(dir, name), "#!/bin/sh\n")
			}
			o := Options{Libexec: filepath.Join(dir, "libexec")}
			chosen, err := o.choose(c.attempt)
			got := chosen.Path + ": " + chosen.Reason
			if err != nil {
				got = err.Error()
			}
			if got = strings.ReplaceAll(got, dir, "DIR"); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestRefusedOnce: a refused crun is not tried again until the machine is booted or the program changes, and what was asked for is
// not replaced.
func TestRefusedOnce(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	crun, calls := filepath.Join(dir, "crun"), filepath.Join(dir, "calls")
	exectest.Write(t, filepath.Join(dir, "runc"), "#!/bin/sh\n")
	script := "#!/bin/sh\n[ $3 = create ] || exit 0\necho call >>" + calls + "\necho no cgroups >&2\nexit 1\n"
	exectest.Write(t, crun, script)
	o := Options{Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Trial: &Trial{Machine: "here", Spec: func(context.Context) (*specs.Spec, func() error, error) {
		return &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}, func() error { return nil }, nil
	}}}
	open := func(o Options) error {
		if err := o.findRuntimes(); err != nil {
			return err
		}
		chosen, err := o.tryRuntimes(t.Context())
		if err == nil && filepath.Base(chosen.Path) != "runc" {
			t.Errorf("chosen: %+v", chosen)
		}
		return err
	}
	tried := func(what string, want int) {
		t.Helper()
		if err := open(o); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if text, err := os.ReadFile(calls); err != nil || strings.Count(string(text), "call") != want {
			t.Errorf("%s: %q, %v; want %d calls", what, text, err, want)
		}
	}
	tried("first use", 1)
	tried("second use", 1)
	if v, err := LookUp(t.Context(), o); err != nil || v.RuntimeReason != crun+" cannot create a container on this machine: no cgroups" {
		t.Errorf("%+v, %v", v, err)
	}
	o.Trial.Machine = "there"
	tried("another machine", 2)
	if err := os.RemoveAll(o.State); err != nil {
		t.Fatal(err)
	}
	tried("after a boot", 3)
	o.RuncPath = "crun"
	if err := open(o); err == nil || !errors.Is(err, ErrUnusable) {
		t.Errorf("asked for: %v", err)
	}
}

// TestHandlersWithoutProgram: a handler that names no program gets the one for the machine, whatever the default is.
func TestHandlersWithoutProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	runc := filepath.Join(dir, "runc")
	exectest.Write(t, runc, "#!/bin/sh\n")
	other := filepath.Join(dir, "other")
	exectest.Write(t, other, "#!/bin/sh\n")
	for name, o := range map[string]Options{
		"a shim":    {Handlers: []Handler{{Name: DefaultHandler, Shim: "/opt/containerd-shim-own-v1"}, {Name: "plain"}}},
		"a program": {RuncPath: other, Handlers: []Handler{{Name: "plain"}}},
		"none":      {Handlers: []Handler{{Name: "plain"}}},
	} {
		if err := o.findRuntimes(); err != nil {
			t.Fatal(err)
		}
		if _, err := o.tryRuntimes(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, h := range o.Handlers {
			if h.Name == "plain" && h.Binary != runc {
				t.Errorf("the default is %s: %q, want %s", name, h.Binary, runc)
			}
		}
	}
}
