package containerd_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
)

// TestNoRuntime: an engine that starts nothing needs no OCI runtime, until it has to stop a
// container.
func TestNoRuntime(t *testing.T) {
	p := newTestDirs(t)
	stock, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	runc := filepath.Join(p.dir, "runc")
	open := func(startsNothing bool) (*containerd.Engine, error) {
		o := p.options()
		o.RuncPath, o.StartsNothing = runc, startsNothing
		return containerd.Open(context.WithoutCancel(t.Context()), o)
	}
	if e, err := open(false); !errors.Is(err, containerd.ErrUnusable) {
		t.Fatalf("engine %v, %v; want none", e, err)
	}
	if err := os.Symlink(stock, runc); err != nil {
		t.Fatal(err)
	}
	loadBox(t, p)
	e, err := open(false)
	if err != nil {
		t.Fatal(err)
	}
	startUp(t, e, p.box(t, "a", "trap"))
	if err := errors.Join(e.Close(), os.Remove(runc)); err != nil {
		t.Fatal(err)
	}
	if e, err = open(true); err != nil {
		t.Fatal(err)
	}
	if c, ok := find(t, e, "a"); !ok || c.State != engine.StateRunning {
		t.Errorf("%+v", c)
	}
	if err := e.Stop(t.Context(), "a", syscall.SIGTERM, time.Minute); err != nil {
		t.Error(err)
	}
	if err := e.Remove(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), runc) {
		t.Errorf("error %v, want one that names %s", err, runc)
	}
	if err := os.Symlink(stock, runc); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Remove(t.Context(), "a"), e.Close()); err != nil {
		t.Error(err)
	}
}

// loadBox imports the box image.
func loadBox(t *testing.T, p testDirs) {
	t.Helper()
	if err := p.openWithBox(t).Close(); err != nil {
		t.Fatal(err)
	}
}
