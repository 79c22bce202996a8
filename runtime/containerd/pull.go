package containerd

import (
	"context"
	"errors"
	"fmt"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/platforms"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/imagestore"
	"github.com/runonce/runonce/runtime/containerd/lease"
	"github.com/runonce/runonce/runtime/containerd/link"
	"github.com/runonce/runonce/runtime/containerd/registry"
)

// downloads is how many layers of an image are fetched at once (the kubelet's containerd: 3).
const downloads = 3

// Pull fetches the image from its registry and unpacks it. The credentials are tried one
// after the other, then those of docker's configuration, as long as the registry refuses.
func (e *Engine) Pull(ctx context.Context, ref string, credentials ...engine.Credential) (engine.Image, error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return engine.Image{}, err
	}
	defer e.pulls.Lock(name)()
	config, err := registry.LoadConfig()
	if err != nil {
		return engine.Image{}, &failure.Error{Why: failure.ReasonErrImagePull, Final: true, Err: err}
	}
	var img engine.Image
	for _, login := range config.Logins(ctx, name, credentials) {
		if img, err = e.pullAs(ctx, name, login); err == nil || !registry.Permanent(err) {
			break
		}
	}
	if err != nil {
		return engine.Image{}, fmt.Errorf("pulling image %q: %w", ref, err)
	}
	return img, nil
}

// pullAs pulls the image with one way to log in.
func (e *Engine) pullAs(ctx context.Context, name string, login registry.Login) (engine.Image, error) {
	var img *imagestore.Image
	err := e.do(ctx, func(ctx context.Context, s *link.Session) (err error) {
		ctx, release, err := lease.Hold(ctx, s.Client)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release()) }()
		_, err = s.Pull(ctx, name,
			client.WithResolver(registry.Resolver(ctx, e.o.CertsDir, login)),
			client.WithPlatformMatcher(platforms.Default()),
			client.WithPullUnpack,
			client.WithPullSnapshotter(s.Snapshotter),
			client.WithMaxConcurrentDownloads(downloads),
		)
		if err = errs.Native(err); err != nil {
			return &failure.Error{Why: failure.ReasonErrImagePull, Final: registry.Permanent(err), Err: failure.WithMessage(registry.Message(err), err)}
		}
		if img, err = e.images.Get(ctx, s, name); err != nil {
			return err
		}
		return e.images.ReadUsers(ctx, s, img)
	})
	if err != nil {
		return engine.Image{}, err
	}
	return img.Image, nil
}
