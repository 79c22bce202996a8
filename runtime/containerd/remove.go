package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// Remove deletes the container with everything that belongs to it, except its logs.
func (e *Engine) Remove(ctx context.Context, id string) error {
	known, _, _ := e.containers.get(id)
	err := e.do(ctx, func(ctx context.Context, s *session) error { return e.remove(ctx, s, id, known.PodUID) })
	if err != nil {
		return fmt.Errorf("removing container %q: %w", id, err)
	}
	return nil
}

// remove removes whatever exists of a container: task, bundle, record, snapshot and files.
func (e *Engine) remove(ctx context.Context, s *session, id, podUID string) error {
	if err := e.removeTask(ctx, s, id, podUID); err != nil {
		return err
	}
	if err := images.IgnoreNotFound(s.ContainerService().Delete(ctx, id)); err != nil {
		return fmt.Errorf("deleting its record: %w", err)
	}
	e.deleted.Store(true)
	if err := images.IgnoreNotFound(s.Snapshots().Remove(ctx, id)); err != nil {
		return fmt.Errorf("deleting its root file system: %w", err)
	}
	record := e.recordPath(id)
	for _, path := range []string{record, protocol.ReservePath(record), protocol.BundlePath(record), protocol.Output{RecordPath: record}.LoggingPath(), e.attachPath(id)} {
		if err := removeFile(path); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(e.stdioDir(id)); err != nil {
		return fmt.Errorf("removing its pipes: %w", err)
	}
	e.containers.remove(id)
	return nil
}

// removeTask kills the process and deletes the task.
func (e *Engine) removeTask(ctx context.Context, s *session, id, podUID string) error {
	// Otherwise its exit would make deleteTask delete the task at the same time.
	e.podLocks.Lock(podUID)
	defer func() { _ = e.podLocks.Unlock(podUID) }()
	var task *tasktypes.Process
	err := inTurn(ctx, e.removals, func() (err error) {
		task, err = s.task(ctx, id)
		return err
	})
	if err := images.IgnoreNotFound(err); err != nil {
		return err
	}
	absent := err != nil
	// Also when it never ran: the shim would leave the kill to "runc delete", which polls.
	if !absent && task.Status != tasktypes.Status_STOPPED {
		if err := e.kill(ctx, s, id); err != nil {
			return err
		}
	}
	// Also when the task is absent: a daemon keeps the shim of a task that it has deleted when
	// the shim did not end in time, and ends it when asked again.
	if err := e.deleteTask(ctx, s, id); err != nil {
		return fmt.Errorf("deleting its task: %w", err)
	}
	if absent && !e.containers.taskDeleted(id) {
		if err := e.removeForgotten(ctx, s, id, podUID); err != nil {
			return err
		}
	}
	if s.shims == nil {
		return e.removeNotedBundle(ctx, s, id)
	}
	return s.removeBundle(ctx, id)
}

// deleteTask deletes a task, if there is one.
func (e *Engine) deleteTask(ctx context.Context, s *session, id string) error {
	err := inTurn(ctx, e.removals, func() error {
		return e.bounded(ctx, s, id, "delete", func(ctx context.Context) error {
			return untilShimAnswers(ctx, func() error {
				return untilShimGone(ctx, func() error {
					_, err := s.Tasks().Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
					return err
				})
			})
		})
	})
	if err == nil {
		e.containers.deletedTask(id)
	}
	return images.IgnoreNotFound(err)
}

// shimGone bounds the wait until containerd has noticed that a shim is dead.
const shimGone = 5 * time.Second

// untilShimGone repeats a call of containerd to a shim that died meanwhile, until containerd knows
// that.
func untilShimGone(ctx context.Context, call func() error) error {
	return repeat(ctx, shimGone, call, func(err error) bool { return strings.Contains(err.Error(), ttrpc.ErrClosed.Error()) })
}

// repeat repeats a call while it fails for a reason that passes, for the time given. The last error is returned.
func repeat(ctx context.Context, most time.Duration, call func() error, passes func(error) bool) error {
	for end := time.Now().Add(most); ; {
		err := call()
		if err == nil || !passes(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// removeForgotten removes what is left of a container of which containerd knows no task.
func (e *Engine) removeForgotten(ctx context.Context, s *session, id, podUID string) error {
	if s.shims == nil {
		return e.removeHalfCreated(ctx, s, id)
	}
	if podUID == "" || e.thirdParty(id) {
		return nil
	}
	return e.bounded(ctx, s, id, "delete", func(ctx context.Context) error {
		killed, err := s.shims.RemoveForgotten(ctx, podUID, id, func() (*runcoptions.Options, error) { return runcOptions(ctx, s, id) })
		if killed {
			e.o.Log.Warn("killed a shim that did not remove its container", "container", id)
		}
		return err
	})
}

// runcOptions returns the options of the container's OCI runtime, nil without a container.
func runcOptions(ctx context.Context, s *session, id string) (*runcoptions.Options, error) {
	rec, err := s.ContainerService().Get(ctx, id)
	if err != nil {
		if err = images.IgnoreNotFound(err); err != nil {
			err = fmt.Errorf("looking for its OCI runtime: %w", err)
		}
		return nil, err
	}
	var o runcoptions.Options
	if err := typeurl.UnmarshalTo(rec.Runtime.Options, &o); err != nil {
		return nil, fmt.Errorf("looking for its OCI runtime: %w", err)
	}
	return &o, nil
}

// removeBundle removes what is left of the bundle of a task that no longer exists.
func (s *session) removeBundle(ctx context.Context, id string) error {
	if s.shims == nil {
		return nil
	}
	return server.RemoveBundle(ctx, server.TasksDir(s.shims.State), id)
}

// kill sends SIGKILL to all processes and waits for the end. It does not use e.containers, which
// may not know the container.
func (e *Engine) kill(ctx context.Context, s *session, id string) error {
	err := e.signal(ctx, s, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(syscall.SIGKILL), All: true})
	if err != nil {
		return fmt.Errorf("killing it: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	// A shim that dies meanwhile ends the wait with an error, but the process has ended too.
	_, _ = s.Tasks().Wait(ctx, &tasksapi.WaitRequest{ContainerID: id})
	if ctx.Err() != nil {
		return fmt.Errorf("killing it: its process is still running %s after SIGKILL: %w", killTimeout, ctx.Err())
	}
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a record: %w", err)
	}
	return nil
}
