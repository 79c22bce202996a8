package containerd

import (
	"context"
	"fmt"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/shim/exitrecord"
)

// sync makes e.containers agree with containerd.
func (e *Engine) sync(ctx context.Context, s *session) error {
	before := e.containers.list("")
	all, err := s.ContainerService().List(ctx)
	if err != nil {
		return fmt.Errorf("listing containers: %w", errs.Native(err))
	}
	resp, err := s.Tasks().List(ctx, &tasksapi.ListTasksRequest{})
	if err != nil {
		return fmt.Errorf("listing tasks: %w", errs.Native(err))
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
	r, err := exitrecord.Read(e.recordPath(id))
	r.ContainerID = id
	switch {
	case t != nil && t.Status == tasktypes.Status_CREATED:
	case t != nil && t.Status == tasktypes.Status_STOPPED && err != nil && !e.thirdParty(id):
		// Our shim records a start before anything else: the process was created and never ran.
	case t != nil && t.Status == tasktypes.Status_STOPPED:
		e.exited(ctx, s, exitrecord.Record{ContainerID: id, ExitCode: int32(t.ExitStatus), FinishedAt: t.ExitedAt.AsTime()})
	case t != nil && t.Status != tasktypes.Status_UNKNOWN:
		e.containers.started(id, r.StartedAt, int(t.Pid))
	case err != nil:
		// Without a record: it was never started.
	case r.Ended():
		e.containers.exited(r)
	default:
		e.containers.lost(id, r.StartedAt)
	}
}

// startedSince reports whether the container was started after the given time by a call whose
// answer was lost. It may have ended already, and must not run twice.
func (e *Engine) startedSince(ctx context.Context, s *session, id string, begin time.Time) (bool, error) {
	t, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	if err := errs.IgnoreNotFound(err); err != nil {
		return false, fmt.Errorf("looking for its task: %w", err)
	}
	if r, err := exitrecord.Read(e.recordPath(id)); err == nil && !r.StartedAt.Before(begin) {
		e.reconcile(ctx, s, id, t.GetProcess())
		return true, nil
	}
	return false, nil
}

// startedElsewhere reports whether the container runs although e.containers does not know that,
// since another process of ours has started it meanwhile. If so, e.containers knows it from now
// on: Start must not take it for a leftover, nor be tried again and again.
func (e *Engine) startedElsewhere(ctx context.Context, s *session, id string) (bool, error) {
	t, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	if err != nil || t.Process.Status != tasktypes.Status_RUNNING {
		return false, errs.IgnoreNotFound(err)
	}
	rec, err := s.ContainerService().Get(ctx, id)
	if err != nil {
		return false, errs.IgnoreNotFound(err)
	}
	one, ok := containerOf(rec)
	if ok {
		e.containers.put(one)
		e.reconcile(ctx, s, id, t.Process)
	}
	return ok, nil
}
