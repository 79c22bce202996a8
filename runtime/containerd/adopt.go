package containerd

import (
	"context"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"

	"github.com/runonce/runonce/runtime/containerd/link"
	"github.com/runonce/runonce/runtime/containerd/record"
)

// adopt reports whether the container runs although the cache knows nothing of that, since
// another process of ours started it meanwhile. If so the cache knows it from now on: whoever
// wanted to start it must not take it for a leftover, nor try again and again.
func (e *Engine) adopt(ctx context.Context, s *link.Session, id string) bool {
	t, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	if err != nil || t.Process.Status != tasktypes.Status_RUNNING {
		return false
	}
	rec, err := s.ContainerService().Get(ctx, id)
	if err != nil {
		return false
	}
	one, ok := record.Container(rec)
	if !ok {
		return false
	}
	e.cache.Put(one)
	e.settle(ctx, s, id, t.Process)
	return true
}
