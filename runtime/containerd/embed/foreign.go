package embed

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
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
)

// tasksDir is where containerd keeps the bundles of tasks, below the state directory.
const tasksDir = "io.containerd.runtime.v2.task"

// TasksDir returns the directory of the bundles of the server with this state directory.
func TasksDir(state string) string { return filepath.Join(state, tasksDir) }

// keepForeign makes sandbox records for the containers whose shims are not ours. When such a
// container has ended while nobody served, containerd would take its shim for a leaked one
// and end it, and the exit code, which that alone knows, with it
// (core/runtime/v2.shouldCleanupShim). It is to be called before the shims are loaded, and
// the function that it returns afterwards.
func (s *Server) keepForeign(ctx context.Context, o Options) (forget func() error, err error) {
	db, err := s.metadata()
	if err != nil {
		return nil, err
	}
	ctx = namespaces.WithNamespace(ctx, o.Namespace)
	bundles, err := os.ReadDir(filepath.Join(TasksDir(o.State), o.Namespace))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for the shims that run: %w", err)
	}
	store, known := metadata.NewSandboxStore(db), metadata.NewContainerStore(db)
	var kept []string
	for _, b := range bundles {
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
