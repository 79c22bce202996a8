package containerd

import (
	"context"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// Resolve asks the registry for the digest of the image. It does not need containerd.
func (e *Engine) Resolve(ctx context.Context, ref string, credentials ...engine.Credential) (string, error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return "", err
	}
	return e.registries.Digest(ctx, name, credentials)
}
