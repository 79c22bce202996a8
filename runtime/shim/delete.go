package shim

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	ptypes "google.golang.org/protobuf/types/known/emptypb"
)

// endingTimeout bounds the wait for the exit of a process that has left its cgroup. It is
// shorter than containerd's own limit for a deletion (core/runtime/v2, cleanupTimeout).
const endingTimeout = 4 * time.Second

// deleteTask also deletes a container whose process has ended but whose exit the service has
// not noticed yet. A containerd that connects at that moment sees no process in the cgroup,
// takes the shim for a leaked one, and forgets it when it refuses: nobody would delete the
// container any more.
func (s *service) deleteTask(ctx context.Context, r *taskAPI.DeleteRequest) (*taskAPI.DeleteResponse, error) {
	resp, err := s.TTRPCTaskService.Delete(ctx, r)
	if err == nil {
		return resp, nil
	}
	left, perr := s.Pids(ctx, &taskAPI.PidsRequest{ID: r.ID})
	if perr != nil || len(left.Processes) > 0 {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, endingTimeout)
	defer cancel()
	if _, werr := s.TTRPCTaskService.Wait(wait, &taskAPI.WaitRequest{ID: r.ID}); werr != nil {
		return nil, err
	}
	return s.TTRPCTaskService.Delete(ctx, r)
}

// Kill also signals the process of a container whose bundle is gone.
func (s *service) Kill(ctx context.Context, r *taskAPI.KillRequest) (*ptypes.Empty, error) {
	if c := s.container(r.ID); c != nil {
		defer ensureBundle(c.bundle)()
	}
	return s.TTRPCTaskService.Kill(ctx, r)
}

func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
