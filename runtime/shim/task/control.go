package task

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

var errFinished = ttrpc.Errorf(ttrpc.NotFound, "process already finished")

func (s *Service) kill(ctx context.Context, r *ttrpc.KillRequest) (ttrpc.Message, error) {
	c, p, err := s.process(r.Request)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	pid, paused := p.pid, c.init.state == ttrpc.Paused
	c.mu.Unlock()
	if pid == 0 {
		return nil, ttrpc.Errorf(ttrpc.FailedPrecondition, "process not created")
	}
	sig := syscall.Signal(r.Signal)
	// All others in its PID namespace end with the first process.
	one := !r.All || sig == syscall.SIGKILL && !c.spec.SharesPIDs()
	paused = paused || sig == syscall.SIGKILL && frozen(pid) // the OCI runtime thaws it
	if r.ExecID != "" || one && !paused {
		err := s.o.Reaper.Signal(pid, sig)
		if errors.Is(err, syscall.ESRCH) {
			err = errFinished
		}
		return &ttrpc.Empty{}, err
	}
	args := []string{"kill"}
	if r.All {
		args = append(args, "--all")
	}
	err = s.command(ctx, c, append(args, c.id, fmt.Sprint(r.Signal))...)
	if err != nil && oci.Gone(err) {
		err = errFinished
	}
	return &ttrpc.Empty{}, err
}

// command has the OCI runtime run a command for a container.
func (s *Service) command(ctx context.Context, c *container, args ...string) error {
	c.commands.Lock()
	defer c.commands.Unlock()
	if !s.has(c) {
		return errFinished
	}
	ctx, cancel := limited(ctx, oci.EndLimit)
	defer cancel()
	_, err := c.runtime.Run(ctx, oci.Command{Args: args})
	return err
}

func (s *Service) pause(ctx context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	return s.freeze(ctx, r.ID, ttrpc.Running, ttrpc.Paused)
}

func (s *Service) resume(ctx context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	return s.freeze(ctx, r.ID, ttrpc.Paused, ttrpc.Running)
}

func (s *Service) freeze(ctx context.Context, id string, from, to uint32) (ttrpc.Message, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	if state := c.stateOf(&c.init); state != from {
		return nil, ttrpc.Errorf(ttrpc.FailedPrecondition, "the container is in state %d", state)
	}
	command, name := "pause", "TaskPaused"
	if to == ttrpc.Running {
		command, name = "resume", "TaskResumed"
	}
	if err := s.command(ctx, c, command, id); err != nil {
		return nil, fmt.Errorf("OCI runtime %s failed: %w", command, err)
	}
	c.mu.Lock()
	if c.init.state == from {
		c.init.state = to
	}
	c.mu.Unlock()
	s.tell(command+"d", name, id)
	return &ttrpc.Empty{}, nil
}

func (s *Service) update(ctx context.Context, r *ttrpc.UpdateRequest) (ttrpc.Message, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	c.commands.Lock()
	defer c.commands.Unlock()
	if !s.has(c) {
		return nil, errFinished
	}
	ctx, cancel := limited(ctx, oci.EndLimit)
	defer cancel()
	_, err = c.runtime.Run(ctx, oci.Command{Args: []string{"update", "--resources", "-", c.id}, Input: r.Resources.Value})
	return &ttrpc.Empty{}, err
}

func (s *Service) stats(_ context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	if c.oom.dir == "" {
		return nil, ttrpc.Errorf(ttrpc.NotFound, "container %s has no cgroup for memory", c.id)
	}
	return ttrpc.NewStats(c.oom.metrics()), nil
}

// pids also lists a container's first process where there is none in its cgroup: systemd may
// have moved it. A containerd that connects to the shim would take it for a leaked one and kill
// the container.
func (s *Service) pids(_ context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	all := c.oom.pids()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(all) == 0 && c.init.state != ttrpc.Stopped && process.Alive(c.init.pid) {
		all = []int{c.init.pid}
	}
	resp := &ttrpc.PidsResponse{}
	for _, pid := range all {
		info := ttrpc.ProcessInfo{PID: uint32(pid)}
		for _, p := range c.execs {
			if p.pid == pid {
				info.Info = ttrpc.Any{TypeURL: "containerd.runc.v1.ProcessDetails", Value: ttrpc.Marshal(&ttrpc.ProcessDetails{ExecID: p.id})}
			}
		}
		resp.Processes = append(resp.Processes, info)
	}
	return resp, nil
}

// endingTimeout bounds the wait for the exit of a process that ends. It is shorter than
// containerd's own limit for a deletion (core/runtime/v2, cleanupTimeout).
const endingTimeout = 4 * time.Second

// delete also deletes a container whose process has ended but whose exit is not complete. A
// containerd that connects at that moment sees no process in the cgroup, takes the shim for a
// leaked one, and forgets it when it refuses: nobody would delete the container any more.
func (s *Service) delete(ctx context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	if r.ExecID != "" {
		return s.deleteExec(r)
	}
	s.mu.Lock()
	c := s.containers[r.ID]
	s.mu.Unlock()
	if c == nil {
		return nil, ttrpc.Errorf(ttrpc.NotFound, "container not created")
	}
	if err := s.deleteContainer(ctx, c); err != nil {
		return nil, err
	}
	if s.o.RemoveBundles {
		_ = removeBundle(c.bundle) // containerd tries again
	}
	return &ttrpc.DeleteResponse{PID: uint32(c.init.pid), Exit: c.init.exit}, nil
}

// deleteContainer removes a container with all but its bundle, and reports it.
func (s *Service) deleteContainer(ctx context.Context, c *container) error {
	c.cancel()
	select {
	case <-c.created:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !c.isCreated() {
		return ttrpc.Errorf(ttrpc.NotFound, "container not created")
	}
	if err := s.awaitEnd(ctx, c); err != nil {
		return err
	}
	if err := s.deleteEnded(ctx, c); err != nil {
		return err
	}
	s.events.publish("delete", "TaskDelete", &ttrpc.ContainerEvent{ID: c.id, PID: uint32(c.init.pid), Exit: c.init.exit})
	return nil
}

// awaitEnd waits for the end of a container that was never started, which it kills, or of one
// that ends. For any other it is an error, also if its start was not over when the call came.
func (s *Service) awaitEnd(ctx context.Context, c *container) error {
	wait, cancel := context.WithTimeout(ctx, endingTimeout)
	defer cancel()
	if !c.starting.LockUntil(wait) {
		return ttrpc.Errorf(ttrpc.FailedPrecondition, "cannot delete a process that is being started, or ends")
	}
	state := c.stateOf(&c.init)
	if state == ttrpc.Created {
		_ = s.o.Reaper.Signal(c.init.pid, syscall.SIGKILL)
	}
	c.starting.Unlock()
	if state != ttrpc.Created && state != ttrpc.Stopped && process.Alive(c.init.pid) {
		return ttrpc.Errorf(ttrpc.FailedPrecondition, "cannot delete a running process")
	}
	select {
	case <-c.init.done:
		return nil
	case <-wait.Done():
		return ttrpc.Errorf(ttrpc.FailedPrecondition, "cannot delete a process that has not ended")
	}
}

// deleteEnded removes all that there is of an ended container, except for its exit record.
func (s *Service) deleteEnded(ctx context.Context, c *container) error {
	c.commands.Lock()
	defer c.commands.Unlock()
	if !s.has(c) {
		return ttrpc.Errorf(ttrpc.NotFound, "container not created") // any more
	}
	ctx, cancel := limited(ctx, oci.EndLimit)
	defer cancel()
	if err := c.runtime.Delete(ctx, c.id, c.spec); err != nil {
		return fmt.Errorf("failed to delete task: %w", err)
	}
	c.mu.Lock()
	c.init.streams.close()
	for _, p := range c.execs {
		if p.streams != nil {
			p.streams.close()
		}
	}
	c.mu.Unlock()
	if err := oci.Unmount(c.bundle + "/rootfs"); err != nil {
		return fmt.Errorf("failed rootfs umount: %w", err)
	}
	s.remove(c.id)
	return nil
}
