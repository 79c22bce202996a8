package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/engine"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// processes run commands in containers.
type processes interface {
	add(ctx context.Context, x command, p *pipes) error
	// start returns the ID of the process, 0 if it cannot be seen from here.
	start(ctx context.Context, x command) (pid int, err error)
	wait(ctx context.Context, x command) (code uint32, err error)
	kill(ctx context.Context, x command) error
	delete(ctx context.Context, x command) error
	closeInput(ctx context.Context, x command) error
	resize(ctx context.Context, x command, s engine.Size) error
}

// daemonProcesses are those of containerd.
type daemonProcesses struct{ tasks tasksapi.TasksClient }

func (d daemonProcesses) add(ctx context.Context, x command, p *pipes) error {
	_, err := d.tasks.Exec(ctx, &tasksapi.ExecProcessRequest{
		ContainerID: x.container, ExecID: x.id, Spec: typeurl.MarshalProto(x.process),
		Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr, Terminal: p.streams.TTY,
	})
	return err
}

func (d daemonProcesses) start(ctx context.Context, x command) (int, error) {
	r, err := d.tasks.Start(ctx, &tasksapi.StartRequest{ContainerID: x.container, ExecID: x.id})
	return visible(int(r.GetPid())), err
}

// visible returns the ID of a process that a shim has started, 0 if it is that of another PID namespace, as when a
// daemon's socket was mounted into a container.
func visible(pid int) int {
	if _, shim := process.Parent(pid); !strings.Contains(shim, "shim") {
		return 0
	}
	return pid
}

func (d daemonProcesses) wait(ctx context.Context, x command) (uint32, error) {
	r, err := d.tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: x.container, ExecID: x.id})
	return r.GetExitStatus(), err
}

func (d daemonProcesses) kill(ctx context.Context, x command) error {
	_, err := d.tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: x.container, ExecID: x.id, Signal: uint32(syscall.SIGKILL)})
	return err
}

func (d daemonProcesses) delete(ctx context.Context, x command) error {
	_, err := d.tasks.DeleteProcess(ctx, &tasksapi.DeleteProcessRequest{ContainerID: x.container, ExecID: x.id})
	return err
}

func (d daemonProcesses) closeInput(ctx context.Context, x command) error {
	_, err := d.tasks.CloseIO(ctx, &tasksapi.CloseIORequest{ContainerID: x.container, ExecID: x.id, Stdin: true})
	return err
}

func (d daemonProcesses) resize(ctx context.Context, x command, s engine.Size) error {
	_, err := d.tasks.ResizePty(ctx, &tasksapi.ResizePtyRequest{ContainerID: x.container, ExecID: x.id, Width: uint32(s.Width), Height: uint32(s.Height)})
	return err
}

// shimProcesses are those of a shim of ours. They do not depend on the process that serves containerd, which may end
// while a command runs.
type shimProcesses struct{ shim taskapi.TTRPCTaskService }

func (s shimProcesses) add(ctx context.Context, x command, p *pipes) error {
	_, err := s.shim.Exec(ctx, &taskapi.ExecProcessRequest{
		ID: x.container, ExecID: x.id, Spec: typeurl.MarshalProto(x.process),
		Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr, Terminal: p.streams.TTY,
	})
	return err
}

func (s shimProcesses) start(ctx context.Context, x command) (int, error) {
	r, err := s.shim.Start(ctx, &taskapi.StartRequest{ID: x.container, ExecID: x.id})
	return int(r.GetPid()), err
}

func (s shimProcesses) wait(ctx context.Context, x command) (uint32, error) {
	r, err := s.shim.Wait(ctx, &taskapi.WaitRequest{ID: x.container, ExecID: x.id})
	return r.GetExitStatus(), err
}

func (s shimProcesses) kill(ctx context.Context, x command) error {
	_, err := s.shim.Kill(ctx, &taskapi.KillRequest{ID: x.container, ExecID: x.id, Signal: uint32(syscall.SIGKILL)})
	return err
}

func (s shimProcesses) delete(ctx context.Context, x command) error {
	_, err := s.shim.Delete(ctx, &taskapi.DeleteRequest{ID: x.container, ExecID: x.id})
	return err
}

func (s shimProcesses) closeInput(ctx context.Context, x command) error {
	_, err := s.shim.CloseIO(ctx, &taskapi.CloseIORequest{ID: x.container, ExecID: x.id, Stdin: true})
	return err
}

func (s shimProcesses) resize(ctx context.Context, x command, size engine.Size) error {
	_, err := s.shim.ResizePty(ctx, &taskapi.ResizePtyRequest{ID: x.container, ExecID: x.id, Width: uint32(size.Width), Height: uint32(size.Height)})
	return err
}

// connectShim connects to the container's shim, if that is one of ours, and reads the container's specification.
func (e *Engine) connectShim(ctx context.Context, id string) (shim *ttrpc.Client, spec *specs.Spec, ours bool, err error) {
	if e.o.Address != "" {
		return nil, nil, false, nil
	}
	shims := server.Shims{State: e.o.State, Namespace: e.o.Namespace}
	if shim, ours, err = shims.Connect(ctx, id); !ours || err != nil {
		return nil, nil, ours, images.NativeError(err)
	}
	data, err := os.ReadFile(filepath.Join(shims.Bundle(id), "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = engine.ErrNotFound
	}
	if err != nil {
		return nil, nil, true, fmt.Errorf("reading its spec: %w", errors.Join(err, shim.Close()))
	}
	return shim, spec, true, nil
}
