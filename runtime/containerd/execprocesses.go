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
	"github.com/runonce/runonce/runtime/shim/protocol"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
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

// PodContainer names a container of a pod.
type PodContainer struct{ PodUID, Name string }

// ExecRunning runs a command in a container as ExecStreams does, at less cost than with an open engine: a
// shim of ours needs none, and a daemon only a connection. ok says whether the container was found running that way.
// If not, nothing has happened.
func ExecRunning(ctx context.Context, o Options, in PodContainer, c engine.Command, s engine.Streams) (code int32, ok bool, err error) {
	if err := o.complete(); err != nil {
		return 0, false, nil
	}
	if o.Address == "" {
		id, shim := o.findRunning(ctx, in)
		if shim == nil {
			return 0, false, nil
		}
		defer func() { _ = shim.Close() }()
		code, err = o.execInShim(ctx, shim, id, c, s)
		return code, true, inCommand(ctx, id, c, err)
	}
	e, err := connectTo(ctx, o)
	if err != nil {
		return 0, false, nil
	}
	defer func() { _ = e.close(context.WithoutCancel(ctx)) }()
	id := e.findRunning(ctx, in)
	if id == "" {
		return 0, false, nil
	}
	code, err = e.ExecStreams(ctx, id, c, s)
	return code, true, err
}

// connectTo returns an engine that is connected to its daemon. It knows no containers, and can start none.
func connectTo(ctx context.Context, o Options) (*Engine, error) {
	s := &session{}
	if err := s.dialDaemon(ctx, o.Address); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	e := newEngine(o)
	e.begin(ctx, s)
	return e, nil
}

// findRunning returns the running instance of a container, "" if a daemon has none.
func (e *Engine) findRunning(ctx context.Context, in PodContainer) (id string) {
	_ = e.do(ctx, func(ctx context.Context, s *session) error {
		all, err := s.ContainerService().List(ctx, fmt.Sprintf("labels.%q==%s", engine.LabelPodUID, in.PodUID))
		if err != nil {
			return err
		}
		for _, c := range all {
			if !engine.IsContainer(c.ID, in.PodUID, in.Name) {
				continue
			}
			t, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: c.ID})
			if err == nil && t.GetProcess().GetStatus() == task.Status_RUNNING {
				id = c.ID
			}
		}
		return nil
	})
	return id
}

// findRunning returns the running instance of a container and its shim, nil if it has none of ours. The caller
// closes it.
func (o Options) findRunning(ctx context.Context, in PodContainer) (id string, shim *ttrpc.Client) {
	bundles, err := os.ReadDir(server.Shims{State: o.State, Namespace: o.Namespace}.Bundle(""))
	if err != nil {
		return "", nil
	}
	for _, b := range bundles {
		id := b.Name()
		if !engine.IsContainer(id, in.PodUID, in.Name) {
			continue
		}
		shim, ours, err := connectShim(ctx, o, id)
		if !ours || err != nil {
			continue
		}
		state, err := taskapi.NewTTRPCTaskClient(shim).State(ctx, &taskapi.StateRequest{ID: id})
		if err == nil && state.GetStatus() == task.Status_RUNNING {
			return id, shim
		}
		_ = shim.Close()
	}
	return "", nil
}

// connectShim connects to the container's shim, if that is one of ours. The caller closes it.
func connectShim(ctx context.Context, o Options, container string) (shim *ttrpc.Client, ours bool, err error) {
	if o.Address != "" {
		return nil, false, nil
	}
	shim, ours, err = server.Shims{State: o.State, Namespace: o.Namespace}.Connect(ctx, container)
	return shim, ours, images.NativeError(err)
}

// execInShim runs a command in a container whose shim is one of ours.
func (o Options) execInShim(ctx context.Context, shim *ttrpc.Client, id string, c engine.Command, s engine.Streams) (int32, error) {
	spec, err := bundledSpec(o, id)
	if err != nil {
		return 0, err
	}
	process, err := execProcess(spec, c, s.TTY)
	if err != nil {
		return 0, err
	}
	s.Starting = nil // the shim ends what this process cannot end
	x := command{shimTasks{taskapi.NewTTRPCTaskClient(shim)}, id, protocol.TiedExec + newExecID(), process}
	code, err := x.run(ctx, o.execDir(), s, s.TTY)
	return code, execError(ctx, err, c.Args)
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
