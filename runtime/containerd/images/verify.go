package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/pkg/imageverifier"
	"github.com/containerd/containerd/v2/pkg/imageverifier/bindir"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/failure"
)

// verifierTimeout limits each verifier, in nanoseconds: one may ask a transparency log. It has no type, since that of the
// field is internal to containerd.
const verifierTimeout = 30_000_000_000

// NewVerifier returns a verifier that calls all programs in the directory, by the protocol of containerd's plug-in
// "bindir" (docs/image-verification.md there).
func NewVerifier(dir string) imageverifier.ImageVerifier {
	return bindir.NewImageVerifier(&bindir.Config{BinDir: dir, MaxVerifiers: -1, PerVerifierTimeout: verifierTimeout})
}

// verified returns the resolver, which finds only what the verifier accepts, if there is one.
func (r Registries) verified(from remotes.Resolver) remotes.Resolver {
	if r.Verifier == nil {
		return from
	}
	return verifiedResolver{from, r.Verifier}
}

type verifiedResolver struct {
	remotes.Resolver
	verifier imageverifier.ImageVerifier
}

// Resolve asks the verifier about what a reference stands for. The content is fetched by that digest.
func (r verifiedResolver) Resolve(ctx context.Context, ref string) (string, ocispec.Descriptor, error) {
	name, target, err := r.Resolver.Resolve(ctx, ref)
	if err != nil {
		return name, target, err
	}
	judgement, err := r.verifier.VerifyImage(ctx, ref, target)
	switch {
	case err != nil:
		return name, target, fmt.Errorf("verifying %s: %w", target.Digest, err)
	case !judgement.OK:
		return name, target, &failure.Error{
			Why: failure.ReasonSignatureValidationFailed, Final: true, Err: fmt.Errorf("verifying %s: %s", target.Digest, judgement.Reason),
		}
	}
	return name, target, nil
}
