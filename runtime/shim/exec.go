package shim

import (
	"context"
	"os"
	"sync"
	"syscall"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	ptypes "google.golang.org/protobuf/types/known/emptypb"
)

// execs remembers the output FIFO of each command that runs in a container. Its zero value is ready for use.
type execs struct{ outputs sync.Map }

func execKey(container, id string) string { return container + "/" + id }

// hold opens the read end of a command's FIFO and returns the function that closes it. The
// process that asked for the command may have been killed. Then nobody reads any more, and
// opening the write end would block the shim for half a minute, in which it notices no exit
// and the container cannot be stopped.
func (e *execs) hold(container, id string) (release func()) {
	path, _ := e.outputs.LoadAndDelete(execKey(container, id))
	name, ok := path.(string)
	if !ok {
		return func() {}
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return func() {} // then it cannot be opened for writing either, and Start says so
	}
	return func() { _ = f.Close() }
}

// Exec prepares a command in a container.
func (s *service) Exec(ctx context.Context, r *taskAPI.ExecProcessRequest) (*ptypes.Empty, error) {
	resp, err := s.TTRPCTaskService.Exec(ctx, r)
	if err == nil && r.Stdout != "" {
		s.execs.outputs.Store(execKey(r.ID, r.ExecID), r.Stdout)
	}
	return resp, err
}
