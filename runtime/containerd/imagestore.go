package containerd

import (
	"context"
	"fmt"

	"github.com/runonce/runonce/runtime/containerd/images"
)

// ListImages returns the images of the local store in order of their references.
func (e *Engine) ListImages(ctx context.Context) ([]images.Record, error) {
	var found []images.Record
	err := e.do(ctx, func(ctx context.Context, s *session) (err error) {
		found, err = images.List(ctx, s.Conn)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	return found, nil
}

// PinImages marks images as such that are kept although nothing uses them.
func (e *Engine) PinImages(ctx context.Context, refs []string) error {
	return e.do(ctx, func(ctx context.Context, s *session) error { return images.Pin(ctx, s.Conn, refs) })
}

// RemoveImages removes images with their content, except what others or containers use, and
// returns how many bytes that has freed.
func (e *Engine) RemoveImages(ctx context.Context, refs []string) (freed int64, err error) {
	err = e.do(ctx, func(ctx context.Context, s *session) error {
		freed, err = e.images.Remove(ctx, s.Conn, refs)
		return err
	})
	return freed, err
}
