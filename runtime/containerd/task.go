package containerd

import (
	"context"
	"fmt"
	"strings"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"

	"github.com/runonce/runonce/runtime/containerd/images"
)

// shimAnswers bounds the wait for the answer of a shim.
const shimAnswers = 30 * time.Second

// task returns the task of a container; the error is of containerd's class NotFound when it has none. Containerd gives the
// shim two seconds to answer (io.containerd.timeout.task.state). When hundreds of pods are removed at once on a slow machine,
// that is not enough, and it is asked again.
func (s *session) task(ctx context.Context, id string) (*tasktypes.Process, error) {
	var resp *tasksapi.GetResponse
	err := untilShimAnswers(ctx, func() (err error) {
		resp, err = s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
		return images.NativeError(err)
	})
	switch {
	case err == nil:
		return resp.Process, nil
	case shimBusy(ctx, err):
		err = fmt.Errorf("its shim does not respond: %w", err)
	}
	return nil, fmt.Errorf("looking for its task: %w", err)
}

// untilShimAnswers repeats a call of containerd to a shim that did not answer within containerd's limit.
func untilShimAnswers(ctx context.Context, call func() error) error {
	return repeat(ctx, shimAnswers, call, func(err error) bool { return shimBusy(ctx, err) })
}

// shimBusy reports whether the error is that a shim did not answer containerd within its limit. Not every such error has
// the class: over ttrpc it is only text.
func shimBusy(ctx context.Context, err error) bool {
	return ctx.Err() == nil && strings.Contains(err.Error(), context.DeadlineExceeded.Error())
}
