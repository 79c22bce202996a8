package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/remotes"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

// Digest asks the registry for the digest of an image with a normalized reference, with the ways to
// log in that a pull uses.
func (r Registries) Digest(ctx context.Context, ref string, given []engine.Credential) (digest string, err error) {
	err = r.Each(ctx, ref, given, func(a Access) error {
		return a.Use(ctx, func(ctx context.Context, resolver remotes.Resolver) error {
			_, target, err := resolver.Resolve(ctx, ref)
			digest = target.Digest.String()
			return err
		})
	})
	if err != nil {
		return "", fmt.Errorf("asking for image %q: %w", ref, &failure.Error{Why: failure.ReasonErrImagePull, Err: err})
	}
	return digest, nil
}
