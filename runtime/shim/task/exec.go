package task

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

func (s *Service) exec(_ context.Context, r *ttrpc.ExecRequest) (ttrpc.Message, error) {
	return s.addExec(r, false)
}

func (s *Service) tiedExec(_ context.Context, r *ttrpc.ExecRequest) (ttrpc.Message, error) {
	return s.addExec(r, true)
}

// addExec adds a process. One that is tied ends with the connection over which it is started.
func (s *Service) addExec(r *ttrpc.ExecRequest, tied bool) (ttrpc.Message, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	spec, err := withTerminal(r.Spec.Value, r.Terminal)
	if err != nil {
		return nil, ttrpc.Errorf(ttrpc.InvalidArgument, "reading the process: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.execs[r.ExecID] != nil || r.ExecID != filepath.Base(r.ExecID) {
		return nil, ttrpc.Errorf(ttrpc.AlreadyExists, "id %s", r.ExecID)
	}
	c.execs[r.ExecID] = &containerProcess{id: r.ExecID, stdio: r.Stdio, spec: spec, tied: tied, state: ttrpc.Created, done: make(chan struct{})}
	s.events.publish("exec-added", "TaskExecAdded", &ttrpc.ProcessEvent{Request: r.Request})
	return &ttrpc.Empty{}, nil
}

// withTerminal returns a process's specification with or without a terminal.
func withTerminal(spec []byte, terminal bool) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(spec, &fields); err != nil {
		return nil, err
	}
	fields["terminal"] = json.RawMessage(fmt.Sprint(terminal))
	return json.Marshal(fields)
}

func (s *Service) startExec(ctx context.Context, c *container, p *containerProcess) (ttrpc.Message, error) {
	c.mu.Lock()
	ready := p.state == ttrpc.Created && c.init.state != ttrpc.Stopped
	if ready {
		p.state = ttrpc.Running
	}
	c.mu.Unlock()
	if !ready {
		return nil, ttrpc.Errorf(ttrpc.FailedPrecondition, "container %s init process is not running", c.id)
	}
	defer s.o.Reaper.Hold()()
	// Whoever started it may be killed meanwhile. With the OCI runtime ended halfway, nobody would know the process.
	ctx, cancel := limited(ctx, oci.StartLimit)
	defer cancel()
	pid, err := c.runExec(ctx, p)
	if err != nil {
		s.ended(c, p, oci.Exit{Status: 255})
		return nil, fmt.Errorf("OCI runtime exec failed: %w", err)
	}
	c.mu.Lock()
	p.pid = pid
	c.mu.Unlock()
	s.events.publish("exec-started", "TaskExecStarted", &ttrpc.ProcessEvent{Request: ttrpc.Request{ID: c.id, ExecID: p.id}, PID: uint32(pid)})
	s.o.Reaper.Watch(pid, func(e oci.Exit) { go s.execExited(c, p, e) })
	if p.tied {
		go s.endWith(ttrpc.Disconnected(ctx), c, p)
	}
	return &ttrpc.PID{PID: uint32(pid)}, nil
}

// endWith kills and deletes a process, with what descends from it, when whoever has started it is gone.
func (s *Service) endWith(gone <-chan struct{}, c *container, p *containerProcess) {
	select {
	case <-p.done:
		return
	case <-gone:
	}
	if s.o.Reaper.Signal(p.pid, syscall.SIGSTOP) == nil { // it has not ended: its number is not another's
		_ = process.KillTree(p.pid)
	}
	<-p.done
	_, _ = s.deleteExec(&ttrpc.Request{ID: c.id, ExecID: p.id}) // unless its container is gone
}

func (c *container) runExec(ctx context.Context, p *containerProcess) (int, error) {
	spec := filepath.Join(c.bundle, p.id+".process")
	if err := os.WriteFile(spec, p.spec, 0o600); err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(spec) }()
	pid, err := c.run(ctx, p, []string{"exec", "--process", spec, "--detach"}, p.id)
	for _, suffix := range []string{".pid", ".json"} {
		_ = os.Remove(filepath.Join(c.bundle, p.id+suffix))
	}
	return pid, err
}

// execExited makes the end of a process known, once its output is copied.
func (s *Service) execExited(c *container, p *containerProcess, e oci.Exit) {
	p.streams.drain(drainTimeout)
	s.events.publish("exit", "TaskExit", s.ended(c, p, e))
}

func (s *Service) deleteExec(r *ttrpc.Request) (ttrpc.Message, error) {
	c, p, err := s.process(*r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.state == ttrpc.Running {
		return nil, ttrpc.Errorf(ttrpc.FailedPrecondition, "cannot delete a running process")
	}
	if p.streams != nil {
		p.streams.close()
	}
	delete(c.execs, p.id)
	return &ttrpc.DeleteResponse{PID: uint32(p.pid), Exit: p.exit}, nil
}
