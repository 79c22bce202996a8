package containerd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
)

// hangingRunc writes an OCI runtime that does not finish a command while a file of its name
// exists in the directory. Meanwhile a child process keeps its output open.
func hangingRunc(t *testing.T, dir string) string {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "hangc")
	script := fmt.Sprintf("#!/bin/sh\nfor a; do [ ! -e %s/hang-$a ] || sleep 1234; done\nexec %s \"$@\"\n", dir, runc)
	exectest.Write(t, path, script)
	return path
}

// TestRuntimeHangs: no command of the OCI runtime is waited for without end, the error names it,
// and once the runtime works again nothing is left.
func TestRuntimeHangs(t *testing.T) {
	for _, version := range []daemon.Version{"", daemon.Current, daemon.Debian} {
		for _, command := range []string{"create", "delete"} { // our shim seldom needs the others
			t.Run(string(version)+" "+command, func(t *testing.T) {
				p := newTestDirs(t)
				if version != "" {
					p = servedDirs(t, version)
					p.logs = t.TempDir()
				}
				testRuntimeHangs(t, p, command)
			})
		}
	}
}

func testRuntimeHangs(t *testing.T, p testDirs, command string) {
	t.Helper()
	if err := p.openWithBox(t).Close(); err != nil {
		t.Fatal(err)
	}
	o := p.options()
	o.RuncPath = hangingRunc(t, p.dir)
	e, err := containerd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	e.SetTimeouts(3*time.Second, 3*time.Second)
	hang := filepath.Join(p.dir, "hang-"+command)
	hangs := func() {
		t.Helper()
		if err := os.WriteFile(hang, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := p.box(t, "a", "trap")
	begin := time.Now()
	switch command {
	case "create":
		hangs()
		err = e.Start(t.Context(), c)
		if n, limited := failure.Retries(err); !limited || n != 1 {
			t.Errorf("%d retries", n)
		}
	case "delete":
		startUp(t, e, c)
		// Our shim runs the command only if there is something that it does not know.
		for _, root := range []string{filepath.Join(o.State, "runc"), "/run/containerd/runc"} {
			state := filepath.Join(root, p.namespace(), "a")
			if err := os.WriteFile(filepath.Join(state, "unknown"), nil, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		hangs()
		if err := e.Stop(t.Context(), "a", syscall.SIGTERM, time.Minute); err != nil {
			t.Error(err)
		}
		err = e.Remove(t.Context(), "a")
	}
	t.Logf("%s: %v", time.Since(begin), err)
	want := fmt.Sprintf("the OCI runtime hangc did not finish %q of container a within 3s", command)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		if err = e.Remove(t.Context(), "a"); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if _, ok := find(t, e, "a"); ok || err != nil && !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("%v", err)
	}
	t.Logf("removed after %s", time.Since(begin))
	if s := shims(t, p.dir); s != "" {
		t.Errorf("left: %s", s)
	}
}
