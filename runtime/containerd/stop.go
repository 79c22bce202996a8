package containerd

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
)

const (
	// killTimeout bounds the wait for a process that got SIGKILL: it may hang in the kernel.
	killTimeout = 30 * time.Second
	// exitTimeout bounds the wait for the exit of a process that has ended: on a busy machine, its
	// shim may not get to telling it for a while.
	exitTimeout = 3 * time.Minute
	// pollInterval is how often a wait asks containerd, in case an event was lost.
	pollInterval = 500 * time.Millisecond
)

// Containers returns the pod's containers, or all.
func (e *Engine) Containers(_ context.Context, podUID string) ([]engine.Container, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	return e.containers.list(podUID), nil
}

// Stop ends the container's process.
func (e *Engine) Stop(ctx context.Context, id string, sig syscall.Signal, grace time.Duration) error {
	err := e.do(ctx, func(ctx context.Context, s *session) error { return e.stop(ctx, s, id, sig, grace) })
	if err != nil {
		return fmt.Errorf("stopping container %q: %w", id, err)
	}
	return nil
}

func (e *Engine) stop(ctx context.Context, s *session, id string, sig syscall.Signal, grace time.Duration) error {
	known, ended, ok := e.containers.get(id)
	switch {
	case !ok || known.State == engine.StateExited:
		return nil
	case known.State == engine.StateUnknown:
		e.podLocks.Lock(known.PodUID)
		defer func() { _ = e.podLocks.Unlock(known.PodUID) }()
		return e.removeForgotten(ctx, s, id, known.PodUID)
	}
	if grace > 0 {
		err := e.signal(ctx, s, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(sig)})
		if err != nil {
			return fmt.Errorf("sending signal %d: %w", sig, err)
		}
		done, err := e.await(ctx, s, id, ended, grace)
		if done || err != nil {
			return err
		}
	}
	err := e.signal(ctx, s, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(syscall.SIGKILL), All: true})
	if err != nil {
		return fmt.Errorf("sending SIGKILL: %w", err)
	}
	done, err := e.await(ctx, s, id, ended, killTimeout)
	if err != nil || done {
		return err
	}
	if process.Alive(known.PID) {
		return fmt.Errorf("its process is still running %s after SIGKILL", killTimeout)
	}
	if done, err = e.await(ctx, s, id, ended, exitTimeout); err == nil && !done {
		err = fmt.Errorf("its process has exited, but its shim did not report it within %s", exitTimeout)
	}
	return err
}

// signal sends a signal when its turn has come. The waits for the ends of the containers, and
// their deadlines, begin after that. A container that is gone is not an error.
func (e *Engine) signal(ctx context.Context, s *session, r *tasksapi.KillRequest) error {
	// Only a daemon that does not respond ends the call, not ctx, which is for the waits.
	ctx, end := e.heartbeat.guard(context.WithoutCancel(ctx))
	defer end()
	return images.IgnoreNotFound(inTurn(ctx, e.signals, func() error {
		return e.bounded(ctx, s, r.ContainerID, "kill", func(ctx context.Context) error {
			_, err := s.Tasks().Kill(ctx, r)
			return err
		})
	}))
}

// inTurn makes a call when there is room for it in the channel.
func inTurn(ctx context.Context, turns chan struct{}, call func() error) error {
	select {
	case turns <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-turns }()
	return call()
}

// await waits at most for the time given, and reports whether the container has ended.
func (e *Engine) await(ctx context.Context, s *session, id string, ended <-chan struct{}, most time.Duration) (bool, error) {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-deadline.C:
			return false, nil
		case <-poll.C:
			if err := e.poll(ctx, s, id); err != nil {
				return false, err
			}
		}
	}
}

// poll asks containerd about the container, unless many calls are being made already.
func (e *Engine) poll(ctx context.Context, s *session, id string) error {
	select {
	case e.signals <- struct{}{}:
	default:
		return nil
	}
	t, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	<-e.signals
	switch err := images.IgnoreNotFound(err); {
	case errdefs.IsDeadlineExceeded(err) && ctx.Err() == nil:
		return nil // the shim is busy
	case err != nil:
		return fmt.Errorf("waiting for its end: %w", err)
	}
	if err != nil {
		e.reconcile(ctx, s, id, nil)
	} else {
		e.reconcile(ctx, s, id, t.Process)
	}
	return nil
}
