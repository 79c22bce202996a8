package task

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// TestDelete: a running container is not deleted, one that was never started is.
func TestDelete(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.run("exec sleep 1000")
	s.refuses(ttrpc.FailedPrecondition, "Delete", &ttrpc.Request{ID: "a"})
	s.must("Create", s.request("b", "exit 0"))
	s.must("Delete", &ttrpc.Request{ID: "b"})
	s.refuses(ttrpc.NotFound, "Delete", &ttrpc.Request{ID: "b"})
	if r, err := protocol.Read(s.record("b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a record of what never started: %+v, %v", r, err)
	}
}

// TestDeleteBundle: the bundle of a container that is deleted goes with it if that was asked for, and the directory that
// containerd has linked in it.
func TestDeleteBundle(t *testing.T) {
	t.Parallel()
	for _, removes := range []bool{false, true} {
		s := newShim(t, "")
		s.o.RemoveBundles = removes
		s.run("exit 0")
		s.wait(&ttrpc.Request{ID: "a"})
		bundle, work := filepath.Join(s.dir, "bundles", "a"), filepath.Join(s.dir, "work", "a")
		if err := errors.Join(os.MkdirAll(work, 0o700), os.Symlink(work, filepath.Join(bundle, "work"))); err != nil {
			t.Fatal(err)
		}
		s.must("Delete", &ttrpc.Request{ID: "a"})
		if absent(bundle) != removes || absent(work) != removes {
			t.Errorf("removes bundles: %v; the bundle is gone: %v, its directory: %v", removes, absent(bundle), absent(work))
		}
	}
}

// TestDeleteStarting: a container that is being started is not killed: whoever deletes it does not know that
// it runs.
func TestDeleteStarting(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.must("Create", s.request("a", "exec sleep 1000"))
	c, err := s.container("a")
	if err != nil {
		t.Fatal(err)
	}
	c.starting.Lock()
	deleted := make(chan error, 1)
	go func() {
		_, err := s.call(t.Context(), "Delete", &ttrpc.Request{ID: "a"})
		deleted <- err
	}()
	select {
	case err := <-deleted:
		t.Errorf("deleted while it was being started: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	c.mu.Lock()
	c.init.state = ttrpc.Running
	c.mu.Unlock()
	c.starting.Unlock()
	var e *ttrpc.Error
	if err := <-deleted; !errors.As(err, &e) || e.Code != ttrpc.FailedPrecondition {
		t.Errorf("deleted: %v", err)
	}
	if err := reaper.Signal(c.init.pid, 0); err != nil {
		t.Errorf("its process: %v", err)
	}
}

// TestDeleteAgain: what was asked for a container, and had to wait until it was deleted, is not done
// to the next one of its name.
func TestDeleteAgain(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.run("exit 0")
	old, err := s.container("a")
	if err != nil {
		t.Fatal(err)
	}
	s.wait(&ttrpc.Request{ID: "a"})
	s.must("Delete", &ttrpc.Request{ID: "a"})
	s.must("Create", s.request("a", "exec sleep 1000"))
	before := s.commands()
	var e *ttrpc.Error
	if err := s.deleteEnded(t.Context(), old); !errors.As(err, &e) || e.Code != ttrpc.NotFound {
		t.Errorf("deleting the old one: %v", err)
	}
	if err := s.command(t.Context(), old, "kill", "--all", "a", "9"); !errors.Is(err, errFinished) {
		t.Errorf("killing the old one: %v", err)
	}
	if after := s.commands(); after != before {
		t.Errorf("ran %q", strings.TrimPrefix(after, before))
	}
	s.stateIs(&ttrpc.Request{ID: "a"}, ttrpc.Created)
}

// TestDeleteEnding: a container whose process has ended is deleted once its log is complete or
// given up, and until then its end is not known.
func TestDeleteEnding(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	fifo := filepath.Join(s.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// A process that stays holds the pipe of the log.
	s.run("(read x <" + fifo + "; echo last) & exit 0")
	c, err := s.container("a")
	if err != nil {
		t.Fatal(err)
	}
	s.until("the end of the process", func() bool { return errors.Is(reaper.Signal(c.init.pid, 0), syscall.ESRCH) })
	s.stateIs(&ttrpc.Request{ID: "a"}, ttrpc.Running)
	if err := os.WriteFile(fifo, nil, 0); err != nil {
		t.Fatal(err)
	}
	s.must("Delete", &ttrpc.Request{ID: "a"})
	if diff := cmp.Diff([]string{"stdout F last"}, s.logLines()); diff != "" {
		t.Error(diff)
	}
}
