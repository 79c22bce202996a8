package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/events/exchange"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/mount"
	shims "github.com/containerd/containerd/v2/core/runtime/v2"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/plugin"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// This file is nearly all that goes around the embedded containerd while it runs (layers.go has what is done
// before): what containerd would do, and this program does itself. With a daemon none of it is used,
// except for ConnectShim, RemoveBundle and DeleteInRuntime.
//
//   - Shims.Ensure and Release start and end shims. Containerd would run the shim's binary
//     twice, once to start the other, and 30 pods take 10 % more CPU time (median of 6 rounds).
//   - lateTasks (latetasks.go) connects to the shims of earlier processes only when a task is asked for. A run that has
//     nothing to change of 1,000 pods takes 2.3 to 2.7 s instead of 4.0 to 4.9 s (three alternating runs).
//   - ConnectShim has commands run in containers without containerd: the process that serves it may end
//     meanwhile, and need not be there.
//   - sandboxes tells containerd of a sandbox for each container with our shim: it connects to
//     a shim that it did not start only for a container of a sandbox (Ensure needs it). Asked, it
//     also replaces a pipe of the shim, for which containerd keeps 32 KiB, two descriptors and
//     a goroutine. And it keeps third-party shims whose container ended while nobody
//     served: containerd would end them, and with them the exit code, which only they know
//     (TestRuntimeClassExitUnseen in hack/e2e).
//   - A shim removes the bundle of a container that it deletes (protocol.Shim.RemoveBundles). Containerd would
//     run the shim's program for what a dead shim leaves, whenever it has closed a connection to a shim, and look
//     for mounts in the bundle. It cannot do so in a directory that is gone: removing 30 pods takes 0.55 s instead of
//     0.93 s (medians of eight alternating runs).
//   - Shims.RemoveForgotten removes a container that containerd has forgotten: by its shim, by
//     killing the shim, which it finds through /proc, or by "runc delete --force"
//     (TestRemoveWhatContainerdForgot, TestRemoveFromShim).
//   - RemoveBundle removes a bundle that containerd failed to remove, also under the name
//     that containerd renames it to (TestBundleLeft).
//
// The shim itself stays within containerd's task API, but for protocol.TiedExec.

const (
	// scheme prefixes the address for containerd.
	scheme = "ttrpc+unix://"
	// answerTimeout bounds the wait for a shim's answer.
	answerTimeout = 10 * time.Second
)

// Shims starts and removes the shims of the embedded containerd with a state directory.
type Shims struct {
	State     string
	Namespace string
	Program   string // the shim's binary, which must stay where it is
	// Adopt is called with each shim that was started; it may be nil.
	Adopt func(ctx context.Context, group string, pid int)
}

// Ensure returns the address of the group's shim, and whether it had to be started. id is
// the shim's name in the process list. Calls for one group must not overlap.
func (s Shims) Ensure(ctx context.Context, group, id string) (address string, fresh bool, err error) {
	path := s.path(group)
	conn, err := protocol.Dial(ctx, path)
	if err == nil {
		return scheme + path, false, conn.Close()
	}
	if !protocol.NotListening(err) {
		return "", false, fmt.Errorf("connecting to the shim: %w", err)
	}
	if err := s.start(ctx, group, id); err != nil {
		return "", false, fmt.Errorf("starting a shim: %w", s.notExecutable(err))
	}
	return scheme + path, true, nil
}

// notExecutable says why the kernel does not execute the shim, if its file system forbids that.
func (s Shims) notExecutable(err error) error {
	var fs unix.Statfs_t
	if errors.Is(err, unix.EACCES) && unix.Statfs(s.Program, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return failure.Permanentf("%w: its file system is mounted noexec; use another --root", err)
	}
	return err
}

// path returns the path of the group's socket.
func (s Shims) path(group string) string {
	return protocol.SocketPath(shimDir(s.State), Socket(s.State), s.Namespace, group)
}

func (s Shims) start(ctx context.Context, group, id string) error {
	path := s.path(group)
	if err := os.MkdirAll(shimDir(s.State), 0o711); err != nil {
		return err
	}
	var p *os.Process
	var err error
	unscheduled(func() {
		p, err = protocol.Start(ctx, protocol.Shim{
			Program: s.Program, Namespace: s.Namespace, ID: id, Address: Socket(s.State), Path: path,
			Events: Socket(s.State) + ttrpcSuffix, Search: protocol.SearchPath,
			RemoveBundles: true,
		})
	})
	if err != nil {
		return err
	}
	// Before it starts anything.
	if err := setLimits(p.Pid); err != nil {
		return errors.Join(err, p.Kill(), p.Release(), os.Remove(path))
	}
	lowerOOMScore(p.Pid)
	if s.Adopt != nil {
		s.Adopt(ctx, group, p.Pid)
	}
	reap(p)
	return nil
}

// Release ends the group's shim when it has no containers.
func (s Shims) Release(ctx context.Context, group string) {
	path := s.path(group)
	conn, err := protocol.Dial(ctx, path)
	if err != nil {
		if protocol.NotListening(err) {
			_ = os.Remove(path) // the next one makes it again
		}
		return
	}
	c := ttrpc.NewClient(conn)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	// A shim that ends may do so before it answers.
	_, _ = taskapi.NewTTRPCTaskClient(c).Shutdown(ctx, &taskapi.ShutdownRequest{ID: "release", Now: true})
}

// ConnectShim connects to the shim of a container that has the bundle, if it speaks ttrpc. The caller closes it.
func ConnectShim(ctx context.Context, bundle string) (*ttrpc.Client, error) {
	path, err := shimSocket(bundle)
	if err != nil {
		return nil, fmt.Errorf("looking for its shim: %w", err)
	}
	conn, err := protocol.Dial(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("connecting to its shim: %w", err)
	}
	return ttrpc.NewClient(conn), nil
}

// shimSocket returns the path of the socket of the shim that containerd has noted in a bundle.
func shimSocket(bundle string) (string, error) {
	var params struct{ Address, Protocol string }
	data, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json"))
	if err == nil {
		err = json.Unmarshal(data, &params)
	} else if errors.Is(err, fs.ErrNotExist) { // before containerd 1.7
		data, err = os.ReadFile(filepath.Join(bundle, "address"))
		params.Address, params.Protocol = string(data), "ttrpc"
	}
	if err != nil {
		return "", err
	}
	_, path, ok := strings.Cut(params.Address, "unix://")
	if !ok || params.Protocol != "ttrpc" {
		return "", fmt.Errorf("it is at %q and speaks %q", params.Address, params.Protocol)
	}
	return path, nil
}

// sandboxPrefix begins the IDs of sandboxes. No container has one with a slash.
const sandboxPrefix = "runonce/"

// Sandbox returns the ID of the sandbox of a container whose shim Ensure has started.
func Sandbox(container string) string { return sandboxPrefix + container }

// sandboxes stands in for containerd's records of sandboxes. The shim manager calls Get alone.
type sandboxes struct {
	sandbox.Store
	containers containers.Store
	bundles    string
}

// Get is called before containerd connects to a container's shim, with the ID of the sandbox, and
// when it has loaded a shim that it finds running, with that of the container.
func (s sandboxes) Get(ctx context.Context, id string) (sandbox.Sandbox, error) {
	found := sandbox.Sandbox{ID: id}
	if container, ok := strings.CutPrefix(id, sandboxPrefix); ok {
		return found, s.discardLog(ctx, container)
	}
	c, err := s.containers.Get(ctx, id)
	if err != nil {
		return found, err
	}
	if c.SandboxID != "" {
		return found, fmt.Errorf("sandbox %q: %w", id, errdefs.ErrNotFound)
	}
	return found, nil
}

// discardLog takes the place of the pipe for the messages of a container's shim. Ours writes none, and
// containerd would read from it for as long as the shim runs.
func (s sandboxes) discardLog(ctx context.Context, id string) error {
	bundle, err := shims.LoadBundle(ctx, s.bundles, id)
	if err != nil {
		return err
	}
	if err := os.Symlink(os.DevNull, filepath.Join(bundle.Path, "log")); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("discarding the messages of its shim: %w", err)
	}
	return nil
}

// newShimManager returns containerd's shim manager.
func newShimManager(ic *plugin.InitContext, started *plugin.Set, state string) (*shims.ShimManager, error) {
	db, err := find[*metadata.DB](started, plugins.MetadataPlugin, "bolt")
	if err != nil {
		return nil, err
	}
	events, err := find[*exchange.Exchange](started, plugins.EventPlugin, "exchange")
	if err != nil {
		return nil, err
	}
	store := metadata.NewContainerStore(db)
	return shims.NewShimManager(&shims.ManagerConfig{
		Store:        store,
		Events:       events,
		Address:      ic.Properties[plugins.PropertyGRPCAddress],
		TTRPCAddress: ic.Properties[plugins.PropertyTTRPCAddress],
		SocketDir:    shimDir(state),
		SandboxStore: sandboxes{containers: store, bundles: TasksDir(state)},
	})
}

// RemoveBundle removes what is left of the bundle of a deleted task. bundles is the directory of those
// of all namespaces; ctx has the namespace. The embedded containerd tries only once, even while a shim
// is still mounting there or runc is making directories.
func RemoveBundle(ctx context.Context, bundles, id string) error {
	bundle, err := shims.LoadBundle(ctx, bundles, id)
	if err != nil {
		return err
	}
	// Containerd renames a bundle before it removes it.
	hidden := filepath.Join(filepath.Dir(bundle.Path), "."+id)
	for _, path := range []string{filepath.Join(bundle.Path, "rootfs"), hidden} {
		if err == nil && exists(path) {
			err = unmountAndRemove(path)
		}
	}
	if err == nil && exists(bundle.Path) {
		err = bundle.Delete()
	}
	if err != nil {
		return fmt.Errorf("removing its bundle: %w", err)
	}
	return nil
}

// unmountAndRemove removes nothing when something cannot be unmounted.
func unmountAndRemove(path string) error {
	if err := mount.UnmountRecursive(path, 0); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// removeTimeout bounds the removal of a container from its shim, as containerd bounds it
// (core/runtime/v2, cleanupTimeout).
const removeTimeout = 5 * time.Second

// RemoveForgotten removes what is left of a container of which the embedded containerd knows
// no task: when it connects to a shim that does not delete an ended task, it forgets the task
// (core/runtime/v2.ShimManager.loadShim). Then only the shim, which runs on, or the OCI
// runtime, when there is no shim any more, knows of the container. A shim that does not
// remove it is killed. options returns those of its OCI runtime, nil without a container.
func (s Shims) RemoveForgotten(ctx context.Context, group, id string, options func() (*runcoptions.Options, error)) (killed bool, err error) {
	killed, err = s.removeFromShim(ctx, group, id)
	if err != nil {
		return killed, err
	}
	// runc and similar runtimes keep a container's state in a directory of its name.
	if !killed && !exists(filepath.Join(RuntimeRoot(s.State), s.Namespace, id)) {
		return false, nil
	}
	o, err := options()
	if err != nil || o == nil {
		return killed, err
	}
	return killed, DeleteInRuntime(ctx, o.BinaryName, filepath.Join(o.Root, s.Namespace), id)
}

// DeleteInRuntime deletes a container with its OCI runtime, which keeps its state below root.
func DeleteInRuntime(ctx context.Context, program, root, id string) error {
	oci.UnmountRuntime(filepath.Join(root, id))
	out, err := exec.CommandContext(ctx, program, "--root", root, "delete", "--force", id).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "does not exist") {
		return fmt.Errorf("deleting it with its OCI runtime: %s: %w", strings.TrimSpace(string(out)), err)
	}
	return nil
}

// removeFromShim has the group's shim kill and delete a container, and end when that was its
// last. A shim that does not do so, or does not answer, is killed; then, and only then, killed
// is true, and the caller must do what the shim no longer can. No shim, or one without such
// a container, is not an error.
func (s Shims) removeFromShim(ctx context.Context, group, id string) (killed bool, err error) {
	path := s.path(group)
	if err = deleteInShim(ctx, path, id); !gone(err) && !errors.Is(err, context.DeadlineExceeded) {
		// The shim itself may be deleting it.
		err = deleteInShim(ctx, path, id)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		_ = os.Remove(path) // a dead shim's; the next one makes it again
	case errors.Is(err, fs.ErrNotExist):
		return s.kill(path) // if one listens at a socket that was deleted
	}
	if gone(err) {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, fmt.Errorf("removing it from its shim: %w", err)
	}
	killed, kerr := s.kill(path)
	if kerr != nil || !killed {
		return killed, fmt.Errorf("removing it from its shim: %w", errors.Join(err, kerr))
	}
	return true, nil
}

// gone reports whether no shim has the container: nobody listens, or the shim has ended or
// does not know of it.
func gone(err error) bool {
	return err == nil || errdefs.IsNotFound(err) || protocol.NotListening(err) || errors.Is(err, ttrpc.ErrClosed)
}

// native returns the shim's error in containerd's terms, and errors of the call as they are.
func native(err error) error {
	if errors.Is(err, ttrpc.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return errgrpc.ToNative(err)
}

func deleteInShim(ctx context.Context, path, id string) error {
	conn, err := protocol.Dial(ctx, path)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer func() { _ = client.Close() }()
	shim := taskapi.NewTTRPCTaskClient(client)
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	state, err := shim.State(ctx, &taskapi.StateRequest{ID: id})
	if err != nil {
		return native(err)
	}
	if state.Status != tasktypes.Status_STOPPED {
		kill := &taskapi.KillRequest{ID: id, Signal: uint32(syscall.SIGKILL), All: true}
		if _, err := shim.Kill(ctx, kill); err != nil && !errdefs.IsNotFound(native(err)) {
			return fmt.Errorf("killing it: %w", native(err))
		}
		if _, err := shim.Wait(ctx, &taskapi.WaitRequest{ID: id}); err != nil {
			return fmt.Errorf("waiting for its end: %w", native(err))
		}
	}
	if _, err := shim.Delete(ctx, &taskapi.DeleteRequest{ID: id}); err != nil {
		return fmt.Errorf("deleting it: %w", native(err))
	}
	// It may end before it answers.
	_, _ = shim.Shutdown(ctx, &taskapi.ShutdownRequest{ID: id})
	return nil
}

// kill kills the shim that listens at the path, and removes the path.
func (s Shims) kill(path string) (killed bool, err error) {
	sockets, err := listening("/proc/net/unix", path)
	if err != nil || len(sockets) == 0 {
		return false, err
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return false, err
	}
	for _, link := range links {
		if name, err := os.Readlink(link); err != nil || !sockets[name] {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil {
			return killed, err
		}
		// It stands for the process even when the number is used again.
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if name, err := os.Readlink(link); err == nil && sockets[name] && s.ours(pid) {
			if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return killed, fmt.Errorf("killing its shim, process %d: %w", pid, err)
			}
			killed = true
		}
		_ = p.Release()
	}
	if killed {
		_ = os.Remove(path)
	}
	return killed, nil
}

// ours reports whether the process is a shim of this containerd.
func (s Shims) ours(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(line), "\x00-address\x00"+Socket(s.State)+"\x00")
}

// listening returns the sockets that listen at the path, by what a link to one says.
func listening(table, path string) (map[string]bool, error) {
	f, err := os.Open(table)
	if err != nil {
		return nil, fmt.Errorf("looking for its shim: %w", err)
	}
	defer func() { _ = f.Close() }()
	found := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path
		fields := strings.Fields(lines.Text())
		if len(fields) == 8 && fields[7] == path && fields[3] == "00010000" {
			found["socket:["+fields[6]+"]"] = true
		}
	}
	return found, lines.Err()
}

// children are the shims that this process has started and that have not ended, so that none
// stays as a zombie. To wait for each would take a thread and a descriptor for each.
var children = struct {
	sync.Mutex
	pids map[int]bool // nil until the first one
}{}

// reap waits for a process in the background. It needs no release any more.
func reap(p *os.Process) {
	pid := p.Pid // which Release forgets
	children.Lock()
	defer children.Unlock()
	if children.pids == nil {
		children.pids = map[int]bool{}
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, unix.SIGCHLD)
		go func() {
			for range ended {
				reapEnded()
			}
		}()
	}
	children.pids[pid] = true
	_ = p.Release()
	reapOne(pid) // it may have ended before the signals were asked for
}

func reapEnded() {
	children.Lock()
	defer children.Unlock()
	for pid := range children.pids {
		reapOne(pid)
	}
}

func reapOne(pid int) {
	if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == pid || err == unix.ECHILD {
		delete(children.pids, pid)
	}
}
