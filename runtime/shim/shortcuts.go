package shim

// The shim's side of package runtime/containerd/shortcuts, which lists them all: what the
// shim does itself although containerd or runc would do it.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/runc"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	ptypes "github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/containerd/v2/pkg/shim"
	gorunc "github.com/containerd/go-runc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const (
	// listenerFD is the descriptor of the listening socket that a shim inherits (pkg/shim.serve).
	listenerFD = 3
	// fifoTimeout bounds the wait for a created container's process to open exec.fifo.
	fifoTimeout = 5 * time.Second
)

// fifoStarter runs runc's commands, except for "runc start". The process that "runc create"
// left waits until someone opens exec.fifo next to runc's state; "runc start" does nothing
// else (libcontainer's Container.exec), but is a whole run of a large program.
type fifoStarter struct {
	gorunc.ProcessMonitor
}

// Start runs the command.
func (m fifoStarter) Start(c *exec.Cmd) (chan gorunc.Exit, error) {
	if startedByFIFO(c) {
		return succeeded(), nil
	}
	return m.ProcessMonitor.Start(c)
}

// StartLocked runs the command on a thread of its own.
func (m fifoStarter) StartLocked(c *exec.Cmd) (chan gorunc.Exit, error) {
	if startedByFIFO(c) {
		return succeeded(), nil
	}
	return m.ProcessMonitor.StartLocked(c)
}

// Wait returns the command's exit code.
func (m fifoStarter) Wait(c *exec.Cmd, exits chan gorunc.Exit) (int, error) {
	if c.Process == nil {
		e := <-exits
		return e.Status, nil
	}
	return m.ProcessMonitor.Wait(c, exits)
}

func succeeded() chan gorunc.Exit {
	exits := make(chan gorunc.Exit, 1)
	exits <- gorunc.Exit{Timestamp: time.Now()}
	return exits
}

// startedByFIFO reports whether the command is a "runc start" and has been done. When
// anything about it is not as expected, runc does it, or reports what is wrong.
func startedByFIFO(c *exec.Cmd) bool {
	state, bundle, ok := parseStart(c.Args)
	if !ok || !canStartByFIFO(state, bundle) {
		return false
	}
	return readFIFO(filepath.Join(state, "exec.fifo")) == nil
}

// parseStart parses "runc --root ROOT --log BUNDLE/log.json ... start ID".
func parseStart(args []string) (state, bundle string, ok bool) {
	if len(args) < 3 || args[len(args)-2] != "start" {
		return "", "", false
	}
	root, log := slices.Index(args, "--root"), slices.Index(args, "--log")
	if root < 0 || log < 0 {
		return "", "", false
	}
	return filepath.Join(args[root+1], args[len(args)-1]), filepath.Dir(args[log+1]), true
}

// canStartByFIFO reports whether this is a container of runc itself and without hooks that
// run at its start.
func canStartByFIFO(state, bundle string) bool {
	if _, err := os.Stat(filepath.Join(state, "state.json")); err != nil {
		return false
	}
	data, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return false
	}
	var spec struct {
		Hooks *specs.Hooks `json:"hooks"`
	}
	return json.Unmarshal(data, &spec) == nil && (spec.Hooks == nil || len(spec.Hooks.Poststart) == 0)
}

// readFIFO opens the FIFO and waits for the byte that the process writes before it becomes
// the container's program.
func readFIFO(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("opening %q: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	deadline := time.Now().Add(fifoTimeout)
	for time.Now().Before(deadline) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for %q: %w", path, err)
		}
		var b [1]byte
		if n, err := unix.Read(fd, b[:]); err != nil || n != 1 {
			return fmt.Errorf("reading %q: %d bytes, %w", path, n, err)
		}
		return os.Remove(path)
	}
	return fmt.Errorf("waiting for %q: nobody opened it within %s", path, fifoTimeout)
}

// quickDeleter is containerd's shim manager with a short way for the usual case of the
// shim's "delete" command: containerd runs it also after a container has ended in an orderly
// way, when nothing is left to do, and the long way runs runc.
type quickDeleter struct {
	shim.Shim
}

// Stop removes what a dead shim left of a container.
func (d quickDeleter) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return d.Shim.Stop(ctx, id)
	}
	bundle := filepath.Join(filepath.Dir(cwd), id)
	if !deleted(ctx, bundle, id) {
		return d.Shim.Stop(ctx, id)
	}
	if err := mount.UnmountRecursive(filepath.Join(bundle, "rootfs"), 0); err != nil {
		return d.Shim.Stop(ctx, id)
	}
	status := shim.StopStatus{ExitedAt: time.Now(), ExitStatus: 128 + 9}
	if e, err := runc.ReadExitStatus(bundle); err == nil {
		status = shim.StopStatus{ExitedAt: e.Timestamp, ExitStatus: e.Status, Pid: e.Pid}
	}
	return status, nil
}

// deleted reports whether runc no longer has such a container.
func deleted(ctx context.Context, bundle, id string) bool {
	ns, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return false
	}
	opts, err := runc.ReadOptions(bundle)
	if err != nil || opts == nil || opts.Root == "" {
		return false
	}
	_, err = os.Stat(filepath.Join(opts.Root, ns, id))
	return errors.Is(err, fs.ErrNotExist)
}

// Shutdown ends the shim when it has no containers. The socket, which the engine made and
// not containerd, goes first: the pod's next container must find either a shim that stays or
// none.
func (s *service) Shutdown(ctx context.Context, r *taskAPI.ShutdownRequest) (*ptypes.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if c.created {
			return s.TTRPCTaskService.Shutdown(ctx, r)
		}
	}
	if s.socket != "" {
		// It may be gone already, and nothing depends on it.
		_ = os.Remove(s.socket)
	}
	return s.TTRPCTaskService.Shutdown(ctx, r)
}

// listenerPath returns the path of the socket that the shim inherited, empty when it has
// none.
func listenerPath() string {
	addr, err := syscall.Getsockname(listenerFD)
	if err != nil {
		return ""
	}
	if u, ok := addr.(*syscall.SockaddrUnix); ok {
		return u.Name
	}
	return ""
}

// ensureBundle makes the bundle's directory again when it is gone, and returns the function
// that then removes it: runc logs there and fails without it.
func ensureBundle(bundle string) (undo func()) {
	if !absent(bundle) || os.Mkdir(bundle, 0o700) != nil {
		return func() {}
	}
	return func() { _ = removeBundle(bundle) }
}
