package spawn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
)

// expelTimeout bounds the removal of a container from its shim, as containerd bounds it
// (core/runtime/v2, shim.cleanup).
const expelTimeout = 5 * time.Second

// Expel has the group's shim kill and delete a container that containerd does not know of,
// and end when that was its last. A shim that does not, or does not answer, is killed; then,
// and only then, killed is true, and what the shim cannot do any more is the caller's. No
// shim, and one without such a container, is no error.
func (s Shims) Expel(ctx context.Context, group, id string) (killed bool, err error) {
	path := s.path(group)
	if err = expel(ctx, path, id); !without(err) && !errors.Is(err, context.DeadlineExceeded) {
		// The shim itself may be deleting what has ended.
		err = expel(ctx, path, id)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path) // a dead one's, and whoever comes next makes it anew
	}
	if without(err) {
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

// without reports whether the container is in no shim: nobody listens, or does so no longer, or
// does not know of it.
func without(err error) bool {
	return err == nil || errdefs.IsNotFound(err) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, ttrpc.ErrClosed)
}

// native is the shim's error in containerd's terms; what befell the call itself stays as it is.
func native(err error) error {
	if errors.Is(err, ttrpc.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return errgrpc.ToNative(err)
}

func expel(ctx context.Context, path, id string) error {
	conn, err := dial(ctx, path)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer func() { _ = client.Close() }()
	shim := taskapi.NewTTRPCTaskClient(client)
	ctx, cancel := context.WithTimeout(ctx, expelTimeout)
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
		// Whoever has the number afterwards is not meant.
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
