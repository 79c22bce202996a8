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
// shorter than what containerd gives to a deletion (core/runtime/v2, shim.cleanup).
const endingTimeout = 4 * time.Second

// deleteTask deletes the container also in the moment between its end and our hearing of
// it. A containerd that connects to us then sees that no process is in the cgroup, takes us
// for leaked, and forgets us when we refuse: nobody would delete the container any more.
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

// Kill signals a container's process also when the bundle is gone.
func (s *service) Kill(ctx context.Context, r *taskAPI.KillRequest) (*ptypes.Empty, error) {
	if c := s.container(r.ID); c != nil {
		defer housed(c.bundle)()
	}
	return s.TTRPCTaskService.Kill(ctx, r)
}

// housed makes the bundle's directory anew when it is gone, until the function that it
// returns is called: runc logs there and fails without it.
func housed(bundle string) (leave func()) {
	if !gone(bundle) || os.Mkdir(bundle, 0o700) != nil {
		return func() {}
	}
	return func() { _ = removeBundle(bundle) }
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
