package containerd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/engine"
)

// TestRemoveWhatContainerdForgot: a container that its shim has and containerd does not know
// of is removed with its shim, whether that answers or not.
func TestRemoveWhatContainerdForgot(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(t *testing.T, p testDirs)
	}{
		{"its bundle is gone", loseBundle},
		{"its bundle and its shim are gone", func(t *testing.T, p testDirs) {
			t.Helper()
			if err := syscall.Kill(shimProcess(t, p), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			loseBundle(t, p)
		}},
		{"its shim does not answer", func(t *testing.T, p testDirs) {
			t.Helper()
			halt(t, shimProcess(t, p))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newTestDirs(t)
			e := p.openWithBox(t)
			startUp(t, e, p.box(t, "a", "trap"))
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			tc.lose(t, p)
			e = p.open(t, t.Context())
			defer func() { _ = e.Close() }()
			if err := e.Remove(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if left := leftovers(t, p); left != "" {
				t.Errorf("left:\n%s", left)
			}
			if gone, err := filepath.Glob("/sys/fs/cgroup/*/runonce-test/" + p.namespace() + "-a"); err != nil || len(gone) > 0 {
				t.Errorf("left: %q, %v", gone, err)
			}
		})
	}
}

// TestBundleLeft: a container is started and removed where a runc that was cut off has left
// directories where the bundle goes.
func TestBundleLeft(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	bundles := p.bundles()
	makeMess(t, bundles, "a")
	if err := e.Start(t.Context(), p.box(t, "a", "exit", "0")); err != nil {
		t.Fatal(err)
	}
	eventually(t, e, "a", engine.StateExited)
	awaitNoBundle(t, filepath.Join(bundles, "a"))
	makeMess(t, bundles, "a")
	if err := e.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, p); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

// makeMess makes directories in the bundle and in the one that containerd renames it to. It
// tries until both are there: the deletion of the ended task may still go on.
func makeMess(t *testing.T, bundles, id string) {
	t.Helper()
	mess, hidden := filepath.Join(bundles, id, "rootfs/dev"), filepath.Join(bundles, "."+id, "rootfs/dev")
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := errors.Join(os.MkdirAll(mess, 0o755), os.MkdirAll(hidden, 0o755))
		if err == nil {
			return
		}
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// awaitNoBundle waits until the ended task has been deleted.
func awaitNoBundle(t *testing.T, bundle string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(bundle); err != nil {
			return
		}
	}
	t.Fatal("the bundle stays")
}

// halt stops a process, with all of its threads.
func halt(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(threads, func(path string) bool {
			text, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(text, []byte("State:\tT"))
		}) {
			return
		}
	}
	t.Fatalf("process %d does not stop", pid)
}

func loseBundle(t *testing.T, p testDirs) {
	t.Helper()
	bundle := filepath.Join(p.bundles(), "a")
	if err := errors.Join(syscall.Unmount(filepath.Join(bundle, "rootfs"), syscall.MNT_DETACH), os.RemoveAll(bundle)); err != nil {
		t.Fatal(err)
	}
}

// shimProcess returns the process ID of the only shim of the embedded containerd.
func shimProcess(t *testing.T, p testDirs) int {
	t.Helper()
	return shimAt(t, p.dir+"/state")
}

// shimAt returns the process ID of the only shim of the containerd at the address.
func shimAt(t *testing.T, address string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte("\x00-namespace\x00")) || !bytes.Contains(line, []byte(address)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatal("no shim")
	return 0
}

// TestSnapshotLeft: a root file system that a crash has left without its container is replaced.
func TestSnapshotLeft(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	cl, err := client.New(server.Socket(p.options().State))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	ctx := namespaces.WithNamespace(t.Context(), p.namespace())
	if _, err := cl.SnapshotService("overlayfs").Prepare(ctx, "a", ""); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), p.box(t, "a", "exit", "3")); err != nil {
		t.Fatal(err)
	}
	if got := eventually(t, e, "a", engine.StateExited); got.Exit.ExitCode != 3 {
		t.Errorf("%+v", got)
	}
}
