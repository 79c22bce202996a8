package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// records are the records of containers, by ID.
type records struct {
	containers.Store
	all map[string]containers.Container
}

func (r records) Get(_ context.Context, id string) (containers.Container, error) {
	c, ok := r.all[id]
	if !ok {
		return c, errdefs.ErrNotFound
	}
	return c, nil
}

func TestSandboxes(t *testing.T) {
	t.Parallel()
	ctx := namespaces.WithNamespace(t.Context(), "ns")
	bundles := t.TempDir()
	s := sandboxes{bundles: bundles, containers: records{all: map[string]containers.Container{
		"ours": {SandboxID: Sandbox("ours")}, "other": {},
	}}}
	for id, want := range map[string]error{
		"other": nil, // its shim has the exit code, and is kept
		"ours":  errdefs.ErrNotFound, "gone": errdefs.ErrNotFound,
		Sandbox("ours"): os.ErrNotExist, // without a bundle
	} {
		if _, err := s.Get(ctx, id); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", id, err, want)
		}
	}
	bundle := filepath.Join(bundles, "ns", "ours")
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a bundle may be left from before
		if _, err := s.Get(ctx, Sandbox("ours")); err != nil {
			t.Error(err)
		}
	}
	if log, err := os.Readlink(filepath.Join(bundle, "log")); log != os.DevNull {
		t.Errorf("the log of the shim is %q, %v", log, err)
	}
}
