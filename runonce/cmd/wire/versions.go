package wire

import (
	"context"

	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/ctrd"
)

// Versions tells those of the daemon at the place's address and of the OCI runtime.
func Versions(ctx context.Context, p backend.Place) (backend.Versions, error) {
	v, err := ctrd.LookUp(ctx, ctrd.Options{Address: p.Address, Handlers: p.Handlers})
	return backend.Versions{Daemon: v.Daemon, Runtime: v.Runtime, RuntimePath: v.RuntimePath}, err
}
