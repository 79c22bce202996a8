package containerd

import (
	"context"
	"fmt"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// sync makes e.containers agree with containerd.
func (e *Engine) sync(ctx context.Context, s *session) error {
	before := e.containers.list("")
	all, err := s.ContainerService().List(ctx)
	if err != nil {
		return fmt.Errorf("listing containers: %w", images.NativeError(err))
	}
	resp, err := s.Tasks().List(ctx, &tasksapi.ListTasksRequest{})
	if err != nil {
		return fmt.Errorf("listing tasks: %w", images.NativeError(err))
	}
	tasks := map[string]*tasktypes.Process{}
	for _, t := range resp.Tasks {
		tasks[t.ID] = t
	}
	listed := map[string]bool{}
	for _, c := range all {
		one, ok := containerOf(c)
		if !ok {
			continue
		}
		listed[one.ID] = true
		e.containers.add(one)
		e.reconcile(ctx, s, one.ID, tasks[one.ID])
	}
	for _, old := range before {
		if !listed[old.ID] {
			e.containers.remove(old.ID)
		}
	}
	return nil
}

// reconcile makes what is known of a container's process agree with its task in containerd, nil
// when there is none, and with its exit record.
func (e *Engine) reconcile(ctx context.Context, s *session, id string, t *tasktypes.Process) {
	r, err := protocol.Read(e.recordPath(id))
	r.ContainerID = id
	switch {
	case t != nil && t.Status == tasktypes.Status_CREATED:
		e.containers.created(id, int(t.Pid))
	case t != nil && t.Status == tasktypes.Status_STOPPED:
		e.exited(ctx, s, protocol.Record{ContainerID: id, ExitCode: int32(t.ExitStatus), FinishedAt: t.ExitedAt.AsTime()})
	case t != nil && t.Status != tasktypes.Status_UNKNOWN:
		e.containers.started(id, r.StartedAt, int(t.Pid))
	case err != nil:
		// Without a record: it was never started.
	case r.Ended():
		e.containers.exited(r)
	default:
		e.resolve(ctx, s, r)
	}
}

const (
	// askAgain is how long to wait before a shim that did not answer is asked again.
	askAgain = time.Second
	// lateExit bounds the wait for the exit of a container whose daemon was dead when it ended: a
	// third-party shim sends the event again for about 15 seconds (containerd 1.6's pkg/shim).
	lateExit = 20 * time.Second
)

// resolve finds out what has become of a container that was started and that containerd did not
// list, or without its state. It may run: its shim may only have been too busy to answer.
func (e *Engine) resolve(ctx context.Context, s *session, r protocol.Record) {
	id := r.ContainerID
	t, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	switch err = images.NativeError(err); {
	case errdefs.IsNotFound(err):
		if known, _, _ := e.containers.get(id); !e.thirdParty(id) || known.State != engine.StateRunning {
			e.containers.lost(id, r.StartedAt)
			return
		}
		e.later(ctx, id, lateExit, func() { e.containers.lost(id, r.StartedAt) })
	case err != nil || t.Process.Status == tasktypes.Status_UNKNOWN:
		e.containers.started(id, r.StartedAt, 0)
		e.later(ctx, id, askAgain, func() { e.reconcile(ctx, s, id, nil) })
	default:
		e.reconcile(ctx, s, id, t.Process)
	}
}

// later calls f after a while, unless the container has ended by then, or something is to be
// called for it already.
func (e *Engine) later(ctx context.Context, id string, wait time.Duration, f func()) {
	_, ended, ok := e.containers.get(id)
	if !ok {
		return
	}
	if _, waits := e.unresolved.LoadOrStore(id, true); waits {
		return
	}
	e.work.Go(func() {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-ended:
		case <-ctx.Done():
		case <-t.C:
		}
		e.unresolved.Delete(id)
		if ctx.Err() == nil {
			f()
		}
	})
}

// startedSince reports whether the container was started after the given time by a call whose
// answer was lost. It may have ended already, and must not run twice.
func (e *Engine) startedSince(ctx context.Context, s *session, id string, begin time.Time) (bool, error) {
	t, err := s.task(ctx, id)
	if err := images.IgnoreNotFound(err); err != nil {
		return false, err
	}
	r, err := protocol.Read(e.recordPath(id))
	started := err == nil && !r.StartedAt.IsZero() && !r.StartedAt.Before(begin)
	switch {
	case t.GetStatus() == tasktypes.Status_RUNNING:
		started = true
	case err == nil && r.StartedAt.IsZero() && !r.Ended():
		// It was about to be started, and no longer waits for that.
		started = t.GetStatus() != tasktypes.Status_CREATED
	}
	if !started {
		return false, nil
	}
	e.reconcile(ctx, s, id, t)
	return true, nil
}

// startedElsewhere reports whether the container has been started although e.containers does not
// know that: another process of ours has started it meanwhile, or a call whose answer was lost.
// If so, e.containers knows it from now on: Start must not take it for a leftover, nor be tried
// again and again.
func (e *Engine) startedElsewhere(ctx context.Context, s *session, id string) (bool, error) {
	rec, err := s.ContainerService().Get(ctx, id)
	if err != nil {
		return false, images.IgnoreNotFound(err)
	}
	one, ok := containerOf(rec)
	if !ok {
		return false, nil
	}
	known, _, ok := e.containers.get(id)
	if ok && known.State != engine.StateCreated && known.CreatedAt.Equal(one.CreatedAt) {
		// What has ended is replaced, but its end may have been reported too early.
		t, err := s.task(ctx, id)
		if err != nil || t.Status != tasktypes.Status_RUNNING {
			return false, images.IgnoreNotFound(err)
		}
	}
	e.containers.put(one)
	return e.startedSince(ctx, s, id, time.Time{})
}
