package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/engine"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/ttrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// tasks are the calls for a command in a container. Containerd's client has them.
type tasks interface {
	Exec(ctx context.Context, r *tasksapi.ExecProcessRequest, _ ...grpc.CallOption) (*emptypb.Empty, error)
	Start(ctx context.Context, r *tasksapi.StartRequest, _ ...grpc.CallOption) (*tasksapi.StartResponse, error)
	Wait(ctx context.Context, r *tasksapi.WaitRequest, _ ...grpc.CallOption) (*tasksapi.WaitResponse, error)
	Kill(ctx context.Context, r *tasksapi.KillRequest, _ ...grpc.CallOption) (*emptypb.Empty, error)
	DeleteProcess(ctx context.Context, r *tasksapi.DeleteProcessRequest, _ ...grpc.CallOption) (*tasksapi.DeleteResponse, error)
	CloseIO(ctx context.Context, r *tasksapi.CloseIORequest, _ ...grpc.CallOption) (*emptypb.Empty, error)
	ResizePty(ctx context.Context, r *tasksapi.ResizePtyRequest, _ ...grpc.CallOption) (*emptypb.Empty, error)
}

// shimTasks has a shim of ours answer. Its commands do not depend on the process that serves
// containerd, which may end while they run.
type shimTasks struct{ shim taskapi.TTRPCTaskService }

func (s shimTasks) Exec(ctx context.Context, r *tasksapi.ExecProcessRequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	return s.shim.Exec(ctx, &taskapi.ExecProcessRequest{
		ID: r.ContainerID, ExecID: r.ExecID, Spec: r.Spec, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal,
	})
}

func (s shimTasks) Start(ctx context.Context, r *tasksapi.StartRequest, _ ...grpc.CallOption) (*tasksapi.StartResponse, error) {
	a, err := s.shim.Start(ctx, &taskapi.StartRequest{ID: r.ContainerID, ExecID: r.ExecID})
	return &tasksapi.StartResponse{Pid: a.GetPid()}, err
}

func (s shimTasks) Wait(ctx context.Context, r *tasksapi.WaitRequest, _ ...grpc.CallOption) (*tasksapi.WaitResponse, error) {
	a, err := s.shim.Wait(ctx, &taskapi.WaitRequest{ID: r.ContainerID, ExecID: r.ExecID})
	return &tasksapi.WaitResponse{ExitStatus: a.GetExitStatus()}, err
}

func (s shimTasks) Kill(ctx context.Context, r *tasksapi.KillRequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	return s.shim.Kill(ctx, &taskapi.KillRequest{ID: r.ContainerID, ExecID: r.ExecID, Signal: r.Signal})
}

func (s shimTasks) DeleteProcess(ctx context.Context, r *tasksapi.DeleteProcessRequest, _ ...grpc.CallOption) (*tasksapi.DeleteResponse, error) {
	_, err := s.shim.Delete(ctx, &taskapi.DeleteRequest{ID: r.ContainerID, ExecID: r.ExecID})
	return &tasksapi.DeleteResponse{}, err
}

func (s shimTasks) CloseIO(ctx context.Context, r *tasksapi.CloseIORequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	return s.shim.CloseIO(ctx, &taskapi.CloseIORequest{ID: r.ContainerID, ExecID: r.ExecID, Stdin: r.Stdin})
}

func (s shimTasks) ResizePty(ctx context.Context, r *tasksapi.ResizePtyRequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	return s.shim.ResizePty(ctx, &taskapi.ResizePtyRequest{ID: r.ContainerID, ExecID: r.ExecID, Width: r.Width, Height: r.Height})
}

// connectShim connects to the container's shim, if that is one of ours. The caller closes it.
func connectShim(ctx context.Context, o Options, container string) (shim *ttrpc.Client, ours bool, err error) {
	if o.Address != "" {
		return nil, false, nil
	}
	shim, ours, err = server.Shims{State: o.State, Namespace: o.Namespace}.Connect(ctx, container)
	return shim, ours, images.NativeError(err)
}

// bundledSpec reads the specification of a container whose shim is one of ours.
func bundledSpec(o Options, container string) (spec *specs.Spec, err error) {
	data, err := os.ReadFile(filepath.Join(server.Shims{State: o.State, Namespace: o.Namespace}.Bundle(container), "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = engine.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading its spec: %w", err)
	}
	return spec, nil
}
