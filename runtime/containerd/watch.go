package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"

	eventsapi "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/typeurl/v2"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

const (
	syncTopic    = "/runonce/sync"
	retryWatch   = 200 * time.Millisecond
	probeRetry   = 20 * time.Millisecond
	probeTimeout = 20 * time.Second

	// connectAfter is after what time the shims are connected to, if nothing has needed that before: whoever works for so
	// long has to know if one of them dies. A slow machine takes less to find that a thousand pods are as they should be.
	connectAfter = 10 * time.Second

	// loggerTimeout bounds the wait for the complete log of an ended container.
	loggerTimeout = 10 * time.Second
)

// Events sends what happens to containers until ctx is done.
func (e *Engine) Events(ctx context.Context) (<-chan engine.Event, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	return e.containers.events(ctx), nil
}

// watch keeps e.containers current until ctx is done, over any number of sessions. synced gets
// nil once they are current for the first time, or the error that prevents it.
func (e *Engine) watch(ctx context.Context, synced chan<- error) {
	tell := func(err error) {
		if synced != nil {
			synced <- err
			synced = nil
		}
	}
	gone := false // containerd, and the user knows
	for ctx.Err() == nil {
		s, err := e.currentSession()
		if err != nil {
			tell(err)
			return
		}
		current := false
		err = e.follow(ctx, s, func(err error) {
			if current = true; gone {
				e.o.Log.Info("containerd responds again")
			}
			gone = false
			tell(err)
		})
		if ctx.Err() != nil {
			tell(ctx.Err())
			return
		}
		e.o.Log.Debug("containerd's events have ended", "error", err)
		if e.lost(s, err) {
			if _, err = e.replace(ctx, s); err == nil {
				continue
			}
		}
		if synced != nil {
			tell(err)
			return
		}
		if !current && !gone && ctx.Err() == nil {
			gone = true
			e.o.Log.Warn("lost the connection to containerd; waiting for it to come back", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryWatch):
		}
	}
}

// follow subscribes, then lists, so that it misses nothing in between, and applies the events
// until they end.
func (e *Engine) follow(ctx context.Context, s *session, synced func(error)) error {
	ctx, end := e.heartbeat.guard(namespaces.WithNamespace(ctx, e.o.Namespace))
	defer end()
	ns := "namespace==" + e.o.Namespace
	received, broken := s.Subscribe(ctx,
		ns+`,topic~="^/tasks/(start|exit|oom)$"`,
		ns+`,topic~="^/containers/(create|delete)$"`,
		ns+`,topic=="`+syncTopic+`"`,
	)
	if s.server == nil {
		if err := e.probeEvents(ctx, s, received, broken); err != nil {
			return err
		}
	}
	again, err := e.firstSync(ctx, s)
	if err != nil {
		return err
	}
	synced(nil)
	for {
		select {
		case env := <-received:
			e.apply(ctx, s, env)
		case <-again:
			again = nil
			if err := e.sync(ctx, s); err != nil {
				return err
			}
		case err := <-broken:
			if err == nil {
				err = errors.New("the stream ended")
			}
			return fmt.Errorf("watching containerd's events: %w", images.NativeError(err))
		}
	}
}

// firstSync makes e.containers agree with containerd, or only with what is known without the shims. Then sync has to be called
// when the channel is closed, which is nil otherwise.
func (e *Engine) firstSync(ctx context.Context, s *session) (again <-chan struct{}, err error) {
	known, err := e.lookFirst(ctx, s)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, e.sync(ctx, s)
	}
	due := make(chan struct{})
	e.work.Go(func() {
		defer close(due)
		select {
		case <-s.server.TasksLoaded():
		case <-time.After(connectAfter):
		case <-ctx.Done():
		}
	})
	return due, nil
}

// probeEvents waits until the subscription is active, which a remote containerd does not tell:
// it publishes events of our own until one is received.
func (e *Engine) probeEvents(ctx context.Context, s *session, received <-chan *events.Envelope, broken <-chan error) error {
	deadline := time.NewTimer(probeTimeout)
	defer deadline.Stop()
	again := time.NewTicker(probeRetry)
	defer again.Stop()
	for {
		err := s.EventService().Publish(ctx, syncTopic, &eventsapi.NamespaceUpdate{Name: e.o.Namespace})
		if err != nil {
			return fmt.Errorf("watching containerd's events: %w", images.NativeError(err))
		}
		select {
		case env := <-received:
			if env.Topic == syncTopic {
				return nil
			}
			// The listing that follows has it.
		case err := <-broken:
			return fmt.Errorf("watching containerd's events: %w", images.NativeError(err))
		case <-again.C:
		case <-deadline.C:
			return fmt.Errorf("watching containerd's events: none came within %s", probeTimeout)
		}
	}
}

func (e *Engine) apply(ctx context.Context, s *session, env *events.Envelope) {
	if env == nil || env.Event == nil || env.Topic == syncTopic {
		return
	}
	v, err := typeurl.UnmarshalAny(env.Event)
	if err != nil {
		e.o.Log.Debug("an event of containerd cannot be decoded", "topic", env.Topic, "error", err)
		return
	}
	switch ev := v.(type) {
	case *eventsapi.TaskStart:
		if !e.replaced(ev.ContainerID, ev.Pid) {
			e.started(ev.ContainerID, env.Timestamp, int(ev.Pid))
		}
	case *eventsapi.TaskExit:
		e.taskExited(ctx, s, ev)
	case *eventsapi.TaskOOM:
		e.containers.outOfMemory(ev.ContainerID)
	case *eventsapi.ContainerCreate:
		if _, _, ok := e.containers.get(ev.ID); ok {
			return
		}
		c, err := s.ContainerService().Get(ctx, ev.ID)
		if err != nil {
			return
		}
		if one, ok := containerOf(c); ok {
			e.containers.add(one)
		}
	case *eventsapi.ContainerDelete:
		e.containers.remove(ev.ID)
	}
}

// taskExited handles the end of a process, which may be that of an exec.
func (e *Engine) taskExited(ctx context.Context, s *session, ev *eventsapi.TaskExit) {
	if ev.ID != ev.ContainerID || e.replaced(ev.ContainerID, ev.Pid) {
		return
	}
	r := protocol.Record{ContainerID: ev.ContainerID, ExitCode: int32(ev.ExitStatus), FinishedAt: ev.ExitedAt.AsTime()}
	if e.thirdParty(ev.ContainerID) {
		// That waits for the shim and the logger.
		e.work.Go(func() { e.exited(ctx, s, r) })
		return
	}
	e.exited(ctx, s, r)
}

// replaced reports whether the process of an event is not that of the container: the event is about an
// earlier container of this ID, which was removed before it was started.
func (e *Engine) replaced(id string, pid uint32) bool {
	known, _, _ := e.containers.get(id)
	return known.PID != 0 && known.PID != int(pid) && !e.thirdParty(id)
}

// exited handles an exit that containerd reports: it completes it from the container's exit
// record, and deletes the task, so that its shim ends.
func (e *Engine) exited(ctx context.Context, s *session, reported protocol.Record) {
	id := reported.ContainerID
	known, _, ok := e.containers.get(id)
	if !ok {
		return
	}
	path := e.recordPath(id)
	if e.neverRan(known) {
		// Also whoever waits for its end has to know.
		e.containers.exited(reported)
		return
	}
	if reported.StartedAt = known.StartedAt; reported.StartedAt.IsZero() {
		reported.StartedAt = known.CreatedAt
	}
	r, err := e.updateRecord(path, reported)
	if err != nil {
		e.o.Log.Warn("could not store a container's exit code; later commands will not see it", "error", err)
	}
	if known.Labels[labelThirdParty] != "" {
		// Its shim closes the logger's pipes with the task, not with the process.
		e.deleteEnded(ctx, s, id, known.PodUID)
		protocol.Output{RecordPath: path}.AwaitLogger(loggerTimeout)
		e.containers.exited(r)
		return
	}
	if e.containers.exited(r) {
		e.work.Go(func() { e.deleteEnded(ctx, s, id, known.PodUID) })
	}
}

// neverRan reports whether the process of a container whose task has ended was created but never
// started: a start is recorded before it happens, or by our shim before it tells anybody.
// containerd reports an exit all the same when it deletes the task, for example because its own
// death cut off the creation.
func (e *Engine) neverRan(c engine.Container) bool {
	_, err := os.Stat(e.recordPath(c.ID))
	return c.State == engine.StateCreated && errors.Is(err, fs.ErrNotExist)
}

// deleteEnded deletes an ended task.
func (e *Engine) deleteEnded(ctx context.Context, s *session, id, podUID string) {
	e.deletions <- struct{}{}
	defer func() { <-e.deletions }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	e.podLocks.Lock(podUID)
	defer func() { _ = e.podLocks.Unlock(podUID) }()
	if err := e.deleteTask(ctx, s, id); err != nil {
		e.o.Log.Debug("an ended task is not deleted", "container", id, "error", err)
	}
}
