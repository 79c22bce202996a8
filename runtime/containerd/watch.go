package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	eventsapi "github.com/containerd/containerd/api/events"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/typeurl/v2"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/link"
	"github.com/runonce/runonce/runtime/containerd/record"
	"github.com/runonce/runonce/runtime/shim/handoff"
)

const (
	syncTopic    = "/runonce/sync"
	retryWatch   = 200 * time.Millisecond
	probeRetry   = 20 * time.Millisecond
	probeTimeout = 20 * time.Second

	// loggerTimeout bounds the wait for the end of an ended container's log.
	loggerTimeout = 10 * time.Second
)

// Events sends what happens to containers until ctx is done.
func (e *Engine) Events(ctx context.Context) (<-chan engine.Event, error) {
	if _, err := e.session(); err != nil {
		return nil, err
	}
	return e.cache.Events(ctx), nil
}

// watch keeps the cache current until ctx is done, over any number of sessions. The
// first time that it is, or that it cannot be, goes to synced.
func (e *Engine) watch(ctx context.Context, synced chan<- error) {
	tell := func(err error) {
		if synced != nil {
			synced <- err
			synced = nil
		}
	}
	for ctx.Err() == nil {
		s, err := e.session()
		if err != nil {
			tell(err)
			return
		}
		err = e.follow(ctx, s, tell)
		if ctx.Err() != nil {
			tell(ctx.Err())
			return
		}
		e.o.Log.Debug("containerd's events have ended", "error", err)
		lost := e.lost(s, err)
		if lost {
			if _, err = e.replace(ctx, s); err == nil {
				continue
			}
		}
		if synced != nil {
			tell(err)
			return
		}
		if lost {
			e.o.Log.Warn("containerd is gone", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryWatch):
		}
	}
}

// follow subscribes, then lists, so that nothing falls between, and applies the events
// until they end.
func (e *Engine) follow(ctx context.Context, s *link.Session, synced func(error)) error {
	ctx, cancel := context.WithCancel(namespaces.WithNamespace(ctx, e.o.Namespace))
	defer cancel()
	ns := "namespace==" + e.o.Namespace
	received, broken := s.Subscribe(ctx,
		ns+`,topic~="^/tasks/(start|exit|oom)$"`,
		ns+`,topic~="^/containers/(create|delete)$"`,
		ns+`,topic=="`+syncTopic+`"`,
	)
	if s.Server == nil {
		if err := e.probeEvents(ctx, s, received, broken); err != nil {
			return err
		}
	}
	if err := e.sync(ctx, s); err != nil {
		return err
	}
	synced(nil)
	for {
		select {
		case env := <-received:
			e.apply(ctx, s, env)
		case err := <-broken:
			if err == nil {
				err = errors.New("the stream ended")
			}
			return fmt.Errorf("watching containerd's events: %w", errs.Native(err))
		}
	}
}

// probeEvents waits until the subscription is in force, which a remote containerd does not
// say: it sends events of our own until one comes back.
func (e *Engine) probeEvents(ctx context.Context, s *link.Session, received <-chan *events.Envelope, broken <-chan error) error {
	deadline := time.NewTimer(probeTimeout)
	defer deadline.Stop()
	again := time.NewTicker(probeRetry)
	defer again.Stop()
	for {
		err := s.EventService().Publish(ctx, syncTopic, &eventsapi.NamespaceUpdate{Name: e.o.Namespace})
		if err != nil {
			return fmt.Errorf("watching containerd's events: %w", errs.Native(err))
		}
		select {
		case env := <-received:
			if env.Topic == syncTopic {
				return nil
			}
			// Whatever it is, the listing that follows has it.
		case err := <-broken:
			return fmt.Errorf("watching containerd's events: %w", errs.Native(err))
		case <-again.C:
		case <-deadline.C:
			return fmt.Errorf("watching containerd's events: none came within %s", probeTimeout)
		}
	}
}

func (e *Engine) apply(ctx context.Context, s *link.Session, env *events.Envelope) {
	if env == nil || env.Event == nil || env.Topic == syncTopic {
		return
	}
	v, err := typeurl.UnmarshalAny(env.Event)
	if err != nil {
		e.o.Log.Debug("an event of containerd's cannot be read", "topic", env.Topic, "error", err)
		return
	}
	switch ev := v.(type) {
	case *eventsapi.TaskStart:
		e.cache.Started(ev.ContainerID, env.Timestamp, int(ev.Pid))
	case *eventsapi.TaskExit:
		if ev.ID == ev.ContainerID {
			r := handoff.Record{ContainerID: ev.ContainerID, ExitCode: int32(ev.ExitStatus), FinishedAt: ev.ExitedAt.AsTime()}
			if e.foreign(ev.ContainerID) {
				// It waits for the shim and the logger.
				e.work.Go(func() { e.exited(ctx, s, r) })
				return
			}
			e.exited(ctx, s, r)
		}
	case *eventsapi.TaskOOM:
		e.cache.OOM(ev.ContainerID)
	case *eventsapi.ContainerCreate:
		if _, _, ok := e.cache.Get(ev.ID); ok {
			return
		}
		c, err := s.ContainerService().Get(ctx, ev.ID)
		if err != nil {
			return
		}
		if one, ok := record.Container(c); ok {
			e.cache.Add(one)
		}
	case *eventsapi.ContainerDelete:
		e.cache.Remove(ev.ID)
	}
}

// sync makes the cache agree with containerd.
func (e *Engine) sync(ctx context.Context, s *link.Session) error {
	before := e.cache.List("")
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
	there := map[string]bool{}
	for _, c := range all {
		one, ok := record.Container(c)
		if !ok {
			continue
		}
		there[one.ID] = true
		e.cache.Add(one)
		e.settle(ctx, s, one.ID, tasks[one.ID])
	}
	for _, old := range before {
		if !there[old.ID] {
			e.cache.Remove(old.ID)
		}
	}
	return nil
}

// settle brings what is known of a container's process up to what containerd says of its
// task, nil when there is none, and what its record says.
func (e *Engine) settle(ctx context.Context, s *link.Session, id string, t *tasktypes.Process) {
	r, err := handoff.ReadRecord(e.recordPath(id))
	r.ContainerID = id
	switch {
	case t != nil && t.Status == tasktypes.Status_CREATED:
	case t != nil && t.Status == tasktypes.Status_STOPPED:
		e.exited(ctx, s, handoff.Record{ContainerID: id, ExitCode: int32(t.ExitStatus), FinishedAt: t.ExitedAt.AsTime()})
	case t != nil && t.Status != tasktypes.Status_UNKNOWN:
		e.cache.Started(id, r.StartedAt, int(t.Pid))
	case err != nil:
		// No record: it was never started.
	case r.Ended():
		e.cache.Exited(r)
	default:
		e.cache.Lost(id, r.StartedAt)
	}
}

// exited notes an exit that containerd reports, completed by the container's record, and
// has the task deleted, so that no shim stays for it.
func (e *Engine) exited(ctx context.Context, s *link.Session, reported handoff.Record) {
	id := reported.ContainerID
	known, _, ok := e.cache.Get(id)
	if !ok {
		return
	}
	path := e.recordPath(id)
	reported.StartedAt = known.StartedAt
	r, err := e.note(path, reported)
	if err != nil {
		e.o.Log.Warn("a container's exit code is known to this process only", "error", err)
	}
	if known.Labels[labelForeign] != "" {
		// Its shim closes the logger's pipes with the task, not with the process.
		e.deleteTask(ctx, s, id, known.PodUID)
		handoff.Output{RecordPath: path}.AwaitLogger(loggerTimeout)
		e.cache.Exited(r)
		return
	}
	if e.cache.Exited(r) {
		e.work.Go(func() { e.deleteTask(ctx, s, id, known.PodUID) })
	}
}

// deleteTask deletes an ended task.
func (e *Engine) deleteTask(ctx context.Context, s *link.Session, id, podUID string) {
	e.tidy <- struct{}{}
	defer func() { <-e.tidy }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	defer e.pods.Lock(podUID)()
	_, err := s.Tasks().Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
	if err := errs.IgnoreNotFound(err); err != nil {
		e.o.Log.Debug("an ended task stays", "container", id, "error", err)
	}
}
