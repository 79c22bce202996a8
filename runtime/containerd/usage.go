package containerd

import (
	"context"
	"fmt"

	"github.com/runonce/runonce/runtime/containerd/errs"
)

// Usage returns the size of the layer that the container writes to, in bytes. One that
// does not exist has size 0.
func (e *Engine) Usage(ctx context.Context, id string) (int64, error) {
	var size int64
	err := e.do(ctx, func(ctx context.Context, s *session) error {
		used, err := s.Snapshots().Usage(ctx, id)
		size = used.Size
		return errs.IgnoreNotFound(err)
	})
	if err != nil {
		return 0, fmt.Errorf("measuring the layer of container %q: %w", id, err)
	}
	return size, nil
}
