package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/protocol"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
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
// containerd, which may end while they run, but end with this one.
type shimTasks struct {
	client *ttrpc.Client
	shim   taskapi.TTRPCTaskService
	added  bool // the command, by Exec
}

func (s *shimTasks) Exec(ctx context.Context, r *tasksapi.ExecProcessRequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	var none emptypb.Empty
	err := s.client.Call(ctx, protocol.TaskService, protocol.TiedExec, &taskapi.ExecProcessRequest{
		ID: r.ContainerID, ExecID: r.ExecID, Spec: r.Spec, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal,
	}, &none)
	s.added = err == nil
	return &none, err
}

func (s *shimTasks) Start(ctx context.Context, r *tasksapi.StartRequest, _ ...grpc.CallOption) (*tasksapi.StartResponse, error) {
	a, err := s.shim.Start(ctx, &taskapi.StartRequest{ID: r.ContainerID, ExecID: r.ExecID})
	return &tasksapi.StartResponse{Pid: a.GetPid()}, err
}

func (s *shimTasks) Wait(ctx context.Context, r *tasksapi.WaitRequest, _ ...grpc.CallOption) (*tasksapi.WaitResponse, error) {
	a, err := s.shim.Wait(ctx, &taskapi.WaitRequest{ID: r.ContainerID, ExecID: r.ExecID})
	return &tasksapi.WaitResponse{ExitStatus: a.GetExitStatus()}, err
}

func (s *shimTasks) Kill(ctx context.Context, r *tasksapi.KillRequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	return s.shim.Kill(ctx, &taskapi.KillRequest{ID: r.ContainerID, ExecID: r.ExecID, Signal: r.Signal})
}

func (s *shimTasks) DeleteProcess(ctx context.Context, r *tasksapi.DeleteProcessRequest, _ ...grpc.CallOption) (*tasksapi.DeleteResponse, error) {
	_, err := s.shim.Delete(ctx, &taskapi.DeleteRequest{ID: r.ContainerID, ExecID: r.ExecID})
	return &tasksapi.DeleteResponse{}, err
}

func (s *shimTasks) CloseIO(ctx context.Context, r *tasksapi.CloseIORequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	return s.shim.CloseIO(ctx, &taskapi.CloseIORequest{ID: r.ContainerID, ExecID: r.ExecID, Stdin: r.Stdin})
}

func (s *shimTasks) ResizePty(ctx context.Context, r *tasksapi.ResizePtyRequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	return s.shim.ResizePty(ctx, &taskapi.ResizePtyRequest{ID: r.ContainerID, ExecID: r.ExecID, Width: r.Width, Height: r.Height})
}

// PodContainer names a container of a pod.
type PodContainer struct{ PodUID, Name string }

// ExecRunning runs a command in a container as ExecStreams does, at less cost than with an open engine: a
// shim of ours needs none, not even a daemon's. ok says whether the container was found running that way.
// If not, nothing has happened, and err may say why.
func ExecRunning(ctx context.Context, o Options, in PodContainer, c engine.Command, s engine.Streams) (code int32, ok bool, err error) {
	if err := o.complete(); err != nil {
		return 0, false, err
	}
	for _, id := range o.bundled(in) {
		if code, ok, err = o.execTied(ctx, id, c, s, s.TTY); ok {
			break
		}
	}
	return code, ok, err
}

// execTied runs a command in a running container over a connection of its own to the shim, with which the command
// ends. ok says whether the shim can do that. If not, it is none of ours or of an earlier version, nothing has
// happened, and err says why. If it has one output, that goes to Stdout.
func (o Options) execTied(ctx context.Context, id string, c engine.Command, s engine.Streams, oneOutput bool) (code int32, ok bool, err error) {
	tasks, process, err := o.connectTied(ctx, id, c, consoleSize(s))
	if err != nil {
		return 0, false, inCommand(ctx, id, c, err)
	}
	defer func() { _ = tasks.client.Close() }()
	s.Starting = nil // the shim ends what this process cannot end
	code, err = command{tasks, id, newExecID(), process}.run(ctx, o.execDir(), s, oneOutput)
	return code, tasks.added, inCommand(ctx, id, c, execError(ctx, err, c.Args))
}

// connectTied connects to the shim of a running container, and returns the process of a command in it. The caller
// closes the connection.
func (o Options) connectTied(ctx context.Context, id string, c engine.Command, terminal *specs.Box) (*shimTasks, typeurl.Any, error) {
	bundle, err := o.bundle(id)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for its shim: %w", err)
	}
	spec, err := bundledSpec(bundle)
	if err != nil {
		return nil, nil, err
	}
	process, err := execProcess(spec, c, terminal)
	if err != nil {
		return nil, nil, err
	}
	client, err := server.ConnectShim(ctx, bundle)
	if err != nil {
		return nil, nil, err
	}
	shim := taskapi.NewTTRPCTaskClient(client)
	state, err := shim.State(ctx, &taskapi.StateRequest{ID: id})
	if err == nil && state.GetStatus() != task.Status_RUNNING {
		err = errors.New("it does not run")
	}
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return &shimTasks{client: client, shim: shim}, process, nil
}

// bundled returns the IDs of all instances of a container that have a bundle, or have had one.
func (o Options) bundled(in PodContainer) (ids []string) {
	dir, suffix := filepath.Split(protocol.BundlePath(o.recordPath("")))
	if o.Address == "" {
		dir, suffix = o.bundles(), ""
	}
	entries, _ := os.ReadDir(dir) // without it there are none
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), suffix); ok && engine.IsContainer(id, in.PodUID, in.Name) {
			ids = append(ids, id)
		}
	}
	return ids
}

// bundle returns the directory of a container's bundle, which need not exist. Of a daemon's, only that of a shim
// of ours is known, which has noted it.
func (o Options) bundle(id string) (string, error) {
	if o.Address == "" {
		return filepath.Join(o.bundles(), id), nil
	}
	return os.Readlink(protocol.BundlePath(o.recordPath(id)))
}

// bundles returns the directory of the bundles of the embedded containerd.
func (o Options) bundles() string { return filepath.Join(server.TasksDir(o.State), o.Namespace) }

// bundledSpec reads the specification of a container from its bundle.
func bundledSpec(bundle string) (spec *specs.Spec, err error) {
	data, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	if err != nil {
		return nil, fmt.Errorf("reading its spec: %w", err)
	}
	return spec, nil
}
