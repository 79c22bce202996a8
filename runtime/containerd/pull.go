package containerd

import (
	"context"
	"fmt"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// Pull fetches the image from its registry and unpacks it. As long as the registry denies
// access, it tries the credentials one after the other, then those of docker's configuration.
func (e *Engine) Pull(ctx context.Context, ref string, credentials ...engine.Credential) (engine.Image, error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return engine.Image{}, err
	}
	defer e.pullLocks.Lock(name)()
	config, err := images.LoadConfig()
	if err != nil {
		return engine.Image{}, &failure.Error{Why: failure.ReasonErrImagePull, Final: true, Err: err}
	}
	var img *images.Image
	for _, login := range config.Logins(ctx, name, credentials) {
		err = e.do(ctx, func(ctx context.Context, s *session) (err error) {
			img, err = e.images.Pull(ctx, s.Conn, name, images.Resolver(ctx, e.o.CertsDir, login))
			return err
		})
		if err == nil || !images.IsPermanent(err) {
			break
		}
	}
	if err != nil {
		return engine.Image{}, fmt.Errorf("pulling image %q: %w", ref, err)
	}
	return img.Image, nil
}
