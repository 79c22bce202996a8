package images

import (
	"context"

	"github.com/containerd/containerd/v2/core/remotes"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/engine"
)

// Resolve asks the registry what an image with a normalized reference is. It tries the ways to
// log in as a pull does, and returns the resolver that worked.
func Resolve(ctx context.Context, certsDir, ref string, credentials []engine.Credential) (ocispec.Descriptor, remotes.Resolver, error) {
	config, err := LoadConfig()
	if err != nil {
		return ocispec.Descriptor{}, nil, &failure.Error{Why: failure.ReasonErrImagePull, Final: true, Err: err}
	}
	for _, login := range config.Logins(ctx, ref, credentials) {
		resolver := Resolver(ctx, certsDir, login)
		var target ocispec.Descriptor
		if _, target, err = resolver.Resolve(ctx, ref); err == nil {
			return target, resolver, nil
		}
		if !IsPermanent(err) {
			break
		}
	}
	return ocispec.Descriptor{}, nil, pullError(err)
}

// pullError returns the error of a pull with its reason, in a few words.
func pullError(err error) error {
	err = errs.Native(err)
	return &failure.Error{Why: failure.ReasonErrImagePull, Final: IsPermanent(err), Err: failure.WithMessage(pullMessage(err), err)}
}
