package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/link"
)

const (
	// killTimeout bounds the wait for a process that got SIGKILL: it may hang in the kernel.
	killTimeout = 30 * time.Second
	// lookAgain is how often a wait asks, should an event have been lost.
	lookAgain = 500 * time.Millisecond
)

// Containers returns the pod's containers, or all.
func (e *Engine) Containers(_ context.Context, podUID string) ([]engine.Container, error) {
	if _, err := e.session(); err != nil {
		return nil, err
	}
	return e.cache.List(podUID), nil
}

// Stop ends the container's process.
func (e *Engine) Stop(ctx context.Context, id string, sig syscall.Signal, grace time.Duration) error {
	err := e.do(ctx, func(ctx context.Context, s *link.Session) error { return e.stop(ctx, s, id, sig, grace) })
	if err != nil {
		return fmt.Errorf("stopping container %q: %w", id, err)
	}
	return nil
}

func (e *Engine) stop(ctx context.Context, s *link.Session, id string, sig syscall.Signal, grace time.Duration) error {
	known, ended, ok := e.cache.Get(id)
	if !ok || known.State == engine.StateExited || known.State == engine.StateUnknown {
		return nil
	}
	if grace > 0 {
		_, err := s.Tasks().Kill(ctx, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(sig)})
		if err := errs.IgnoreNotFound(err); err != nil {
			return fmt.Errorf("sending signal %d: %w", sig, err)
		}
		done, err := e.await(ctx, s, id, ended, grace)
		if done || err != nil {
			return err
		}
	}
	_, err := s.Tasks().Kill(ctx, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(syscall.SIGKILL), All: true})
	if err := errs.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("sending SIGKILL: %w", err)
	}
	done, err := e.await(ctx, s, id, ended, killTimeout)
	if err == nil && !done {
		err = fmt.Errorf("its process is there %s after SIGKILL", killTimeout)
	}
	return err
}

// await waits for the end of the container, at most for the time given.
func (e *Engine) await(ctx context.Context, s *link.Session, id string, ended <-chan struct{}, most time.Duration) (bool, error) {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-ended:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-deadline.C:
			return false, nil
		case <-look.C:
			t, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
			if err := errs.IgnoreNotFound(err); err != nil {
				return false, fmt.Errorf("waiting for its end: %w", err)
			}
			if err != nil {
				e.settle(ctx, s, id, nil)
			} else {
				e.settle(ctx, s, id, t.Process)
			}
		}
	}
}

// kill sends SIGKILL to all processes and waits for the end, without the cache: it may not
// know of the container.
func (e *Engine) kill(ctx context.Context, s *link.Session, id string) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	_, err := s.Tasks().Kill(ctx, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(syscall.SIGKILL), All: true})
	if err := errs.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("killing it: %w", err)
	}
	// A shim that dies meanwhile ends the wait with an error, and it is over all the same.
	_, _ = s.Tasks().Wait(ctx, &tasksapi.WaitRequest{ContainerID: id})
	if ctx.Err() != nil {
		return fmt.Errorf("killing it: its process is there %s after SIGKILL: %w", killTimeout, ctx.Err())
	}
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a record: %w", err)
	}
	return nil
}
