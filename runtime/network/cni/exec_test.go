package cni

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/hack/exectest"
	"github.com/runonce/runonce/internal/flock"
)

// A plugin that hangs is killed with what it has started, which would keep the lock otherwise.
func TestHangingPluginIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plugin, path := filepath.Join(dir, "hangs"), filepath.Join(dir, "lock")
	exectest.Write(t, plugin, "#!/bin/sh\nsleep 600 &\nwait\n")
	lock, err := flock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	e := &pluginExec{inherit: []*os.File{lock}, limit: 100 * time.Millisecond}
	if _, err := e.ExecPlugin(t.Context(), plugin, nil, nil); err == nil || !strings.Contains(err.Error(), "it did not finish within 100ms") {
		t.Errorf("error %v, want the limit", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, context.Canceled)
	defer cancel()
	e.limit = time.Hour
	if _, err := e.ExecPlugin(ctx, plugin, nil, nil); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("error %v, want that of the caller", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	free, err := flock.Acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Error(err)
	}
}
