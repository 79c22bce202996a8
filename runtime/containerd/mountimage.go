package containerd

import (
	"context"
	"fmt"

	"github.com/runonce/runonce/runtime/containerd/imagestore"
	"github.com/runonce/runonce/runtime/containerd/link"
	"github.com/runonce/runonce/runtime/image"
)

// Mount mounts the image of the local store that ref names on the directory, read-only,
// and keeps it under the key.
func (e *Engine) Mount(ctx context.Context, ref, key, dir string) error {
	name, err := image.Normalize(ref)
	if err != nil {
		return err
	}
	err = e.do(ctx, func(ctx context.Context, s *link.Session) error {
		img, err := e.images.Get(ctx, s, name)
		if err != nil {
			return err
		}
		return e.images.MountView(ctx, s, img, key, dir)
	})
	if err != nil {
		return fmt.Errorf("mounting image %q: %w", ref, err)
	}
	return nil
}

// Release lets go of an image that was mounted under the key.
func (e *Engine) Release(ctx context.Context, key string) error {
	err := e.do(ctx, func(ctx context.Context, s *link.Session) error { return imagestore.RemoveView(ctx, s, key) })
	if err != nil {
		return fmt.Errorf("releasing image volume %q: %w", key, err)
	}
	e.deleted.Store(true)
	return nil
}
