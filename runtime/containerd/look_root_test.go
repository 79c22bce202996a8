package containerd_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
)

// openToLook opens an engine that only looks.
func openToLook(t *testing.T, p testDirs) *containerd.Engine {
	t.Helper()
	o := p.options()
	o.Looks = true
	e, err := containerd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestLook: who only looks sees the same as everybody else, without the shims, which are stopped here, and can run
// commands. A dead shim makes it look closer.
func TestLook(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	for _, c := range []engine.ContainerConfig{p.box(t, "runs", "sleep"), p.box(t, "ended", "exit", "3")} {
		if err := e.Start(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, e, "ended", engine.StateExited)
	want := list(t, e)
	compare := func(e *containerd.Engine) {
		t.Helper()
		if diff := cmp.Diff(want, list(t, e)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	compare(openToLook(t, p)) // beside the process that serves
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	shim := shimAt(t, "\x00runs\x00-address\x00"+p.dir+"/state")
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	alone := openToLook(t, p)
	compare(alone)
	compare(openToLook(t, p)) // nobody waits for the one before to be closed
	if err := syscall.Kill(shim, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if res, err := alone.Exec(t.Context(), "runs", []string{"/bin/box", "exit", "4"}); err != nil || res.ExitCode != 4 {
		t.Errorf("exit code %d, %v", res.ExitCode, err)
	}
	if res, err := alone.Exec(t.Context(), "ended", []string{"/bin/box"}); err == nil {
		t.Errorf("exit code %d of a command in a container that has ended", res.ExitCode)
	}
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for process.Alive(shim) {
		time.Sleep(10 * time.Millisecond)
	}
	if c, _ := find(t, openToLook(t, p), "runs"); c.State != engine.StateUnknown {
		t.Errorf("%q without its shim", c.State)
	}
}

// TestOpenedWithoutShims: an engine that works on knows all containers, too, without their shims, of which one is stopped
// here. It connects to them later, by itself, and then knows if one dies.
func TestOpenedWithoutShims(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	if err := e.Start(t.Context(), p.box(t, "runs", "sleep")); err != nil {
		t.Fatal(err)
	}
	want := list(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	shim := shimAt(t, "\x00runs\x00-address\x00"+p.dir+"/state")
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	e = p.open(t, t.Context())
	t.Cleanup(func() { _ = e.Close() })
	if diff := cmp.Diff(want, list(t, e)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, e, "runs", engine.StateUnknown)
}
