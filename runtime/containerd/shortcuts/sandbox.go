package shortcuts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// Sandbox is the ID of the one sandbox record of all containers. Containerd connects to a
// shim that it has not started only for containers that belong to a sandbox
// (core/runtime/v2.ShimManager.Start).
const Sandbox = "runonce"

// CreateSandbox creates the sandbox record in containerd's metadata store.
func CreateSandbox(ctx context.Context, db *metadata.DB, namespace string) error {
	store := metadata.NewSandboxStore(db)
	ctx = namespaces.WithNamespace(ctx, namespace)
	_, err := store.Get(ctx, Sandbox)
	if !errdefs.IsNotFound(err) {
		return err
	}
	_, err = store.Create(ctx, sandbox.Sandbox{ID: Sandbox, Runtime: sandbox.RuntimeOpts{Name: Sandbox}})
	if err != nil {
		return fmt.Errorf("creating the sandbox record: %w", err)
	}
	return nil
}

// KeepThirdParty creates sandbox records for the containers with third-party shims. When such
// a container has ended while nobody served, containerd would take its shim for a leaked one
// and end it (core/runtime/v2.shouldCleanupShim), and the exit code, which only the shim
// knows, would be lost. It must be called before containerd loads the shims, and the function
// that it returns afterwards.
func KeepThirdParty(ctx context.Context, db *metadata.DB, bundles, namespace string) (forget func() error, err error) {
	ctx = namespaces.WithNamespace(ctx, namespace)
	entries, err := os.ReadDir(filepath.Join(bundles, namespace))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for running shims: %w", err)
	}
	store, known := metadata.NewSandboxStore(db), metadata.NewContainerStore(db)
	var kept []string
	for _, b := range entries {
		c, err := known.Get(ctx, b.Name())
		if err != nil || c.SandboxID != "" {
			continue
		}
		_, err = store.Create(ctx, sandbox.Sandbox{ID: c.ID, Runtime: sandbox.RuntimeOpts{Name: c.Runtime.Name}})
		if err != nil && !errdefs.IsAlreadyExists(err) {
			return nil, fmt.Errorf("keeping the shim of container %q: %w", c.ID, err)
		}
		kept = append(kept, c.ID)
	}
	return func() error {
		errs := make([]error, 0, len(kept))
		for _, id := range kept {
			errs = append(errs, store.Delete(ctx, id))
		}
		return errors.Join(errs...)
	}, nil
}
