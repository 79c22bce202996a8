package embed

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// Sandbox is the ID of the one sandbox record in the store. Containerd connects to a shim
// that someone else has started only for containers that belong to a sandbox
// (core/runtime/v2.ShimManager.Start); all of ours belong to this one.
const Sandbox = "runonce"

func (s *Server) makeSandbox(ctx context.Context, namespace string) error {
	db, err := s.metadata()
	if err != nil {
		return err
	}
	store := metadata.NewSandboxStore(db)
	ctx = namespaces.WithNamespace(ctx, namespace)
	if _, err = store.Get(ctx, Sandbox); !errdefs.IsNotFound(err) {
		return err
	}
	_, err = store.Create(ctx, sandbox.Sandbox{ID: Sandbox, Runtime: sandbox.RuntimeOpts{Name: Sandbox}})
	if err != nil {
		return fmt.Errorf("making the sandbox record: %w", err)
	}
	return nil
}
