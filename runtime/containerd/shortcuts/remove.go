package shortcuts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"

	"github.com/runonce/runonce/runtime/shim/launch"
)

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
	if !killed && !exists(filepath.Join(s.RuntimeRoot, s.Namespace, id)) {
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
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path) // a dead shim's; the next one makes it again
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
	return err == nil || errdefs.IsNotFound(err) || launch.NotListening(err) || errors.Is(err, ttrpc.ErrClosed)
}

// native returns the shim's error in containerd's terms, and errors of the call as they are.
func native(err error) error {
	if errors.Is(err, ttrpc.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return errgrpc.ToNative(err)
}

func deleteInShim(ctx context.Context, path, id string) error {
	conn, err := launch.Dial(ctx, path)
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
	if err != nil {
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
	return err == nil && strings.Contains(string(line), "\x00-address\x00"+s.Address+"\x00")
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
