package server

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestTryLock(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	unlock, err := TryLock(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(root); !errors.Is(err, ErrLocked) {
		t.Errorf("a second time: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := TryLock(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
	if _, err := TryLock("/dev/null/root"); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("impossible: %v", err)
	}
}

func TestSocketsFitTheKernel(t *testing.T) {
	t.Parallel()
	const limit = 107
	for _, state := range []string{"/run/runonce", "/" + strings.Repeat("x", 39), "/" + strings.Repeat("x", 200)} {
		shim := filepath.Join(shimDir(state), strings.Repeat("0", 64))
		if len(shim) > limit || len(Socket(state)+ttrpcSuffix) > limit {
			t.Errorf("%q: %q, %q", state, shim, Socket(state))
		}
	}
	if Socket("/run/runonce") != "/run/runonce/containerd.sock" {
		t.Errorf("%q", Socket("/run/runonce"))
	}
	if Socket(strings.Repeat("/x", 100)) == Socket(strings.Repeat("/y", 100)) {
		t.Error("two long directories share a socket")
	}
}
