package containerd

import (
	"context"
	"fmt"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/image"
)

// Mount mounts an image of the local store read-only on the directory, and keeps it under the
// key.
func (e *Engine) Mount(ctx context.Context, ref, key, dir string) error {
	name, err := image.Normalize(ref)
	if err != nil {
		return err
	}
	err = e.do(ctx, func(ctx context.Context, s *session) error {
		img, err := e.images.Get(ctx, s.Conn, name)
		if err != nil {
			return err
		}
		return e.images.MountView(ctx, s.Conn, img, key, dir)
	})
	if err != nil {
		return fmt.Errorf("mounting image %q: %w", ref, err)
	}
	return nil
}

// Release removes what Mount keeps under the key.
func (e *Engine) Release(ctx context.Context, key string) error {
	err := e.do(ctx, func(ctx context.Context, s *session) error { return images.RemoveView(ctx, s.Conn, key) })
	if err != nil {
		return fmt.Errorf("releasing image volume %q: %w", key, err)
	}
	e.deleted.Store(true)
	return nil
}
