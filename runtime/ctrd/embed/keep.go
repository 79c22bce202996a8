package embed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

// tasksDir is where containerd keeps the bundles of tasks, below the state directory.
const tasksDir = "io.containerd.runtime.v2.task"

// keepShims makes sandbox records for the containers that have a bundle. When such a
// container has ended while nobody served, containerd would take its shim for a leaked one
// and end it (core/runtime/v2.shouldCleanupShim): a foreign shim alone knows the exit code,
// and ours, when the process is killed at that very moment, refuses to delete what it still
// believes to run, and would be forgotten. It is to be called before the shims are loaded,
// and the function that it returns afterwards.
func (s *Server) keepShims(ctx context.Context, o Options) (forget func() error, err error) {
	db, err := s.metadata()
	if err != nil {
		return nil, err
	}
	ctx = namespaces.WithNamespace(ctx, o.Namespace)
	bundles, err := os.ReadDir(filepath.Join(o.State, tasksDir, o.Namespace))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for the shims that run: %w", err)
	}
	var kept []containers.Container
	known := metadata.NewContainerStore(db)
	for _, b := range bundles {
		if c, err := known.Get(ctx, b.Name()); err == nil {
			kept = append(kept, c)
		}
	}
	if len(kept) == 0 {
		return func() error { return nil }, nil
	}
	store := metadata.NewSandboxStore(db)
	keep := func(ctx context.Context, c containers.Container) error {
		_, err := store.Create(ctx, sandbox.Sandbox{ID: c.ID, Runtime: sandbox.RuntimeOpts{Name: c.Runtime.Name}})
		if err != nil && !errdefs.IsAlreadyExists(err) {
			return fmt.Errorf("keeping the shim of container %q: %w", c.ID, err)
		}
		return nil
	}
	drop := func(ctx context.Context, c containers.Container) error { return store.Delete(ctx, c.ID) }
	return func() error { return atOnce(ctx, db, kept, drop) }, atOnce(ctx, db, kept, keep)
}

// atOnce does something to each container in one transaction.
func atOnce(ctx context.Context, db *metadata.DB, all []containers.Container, do func(context.Context, containers.Container) error) error {
	return db.Update(func(tx *bolt.Tx) error {
		ctx := boltutil.WithTransaction(ctx, tx)
		for _, c := range all {
			if err := do(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Server) metadata() (*metadata.DB, error) {
	p := s.set.Get(plugins.MetadataPlugin, "bolt")
	if p == nil {
		return nil, errors.New("opening the metadata store: it is missing")
	}
	instance, err := p.Instance()
	if err != nil {
		return nil, fmt.Errorf("opening the metadata store: %w", err)
	}
	db, ok := instance.(*metadata.DB)
	if !ok {
		return nil, fmt.Errorf("opening the metadata store: it is a %T", instance)
	}
	return db, nil
}
