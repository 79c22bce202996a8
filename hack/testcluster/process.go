package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopTimeout bounds the wait for the end of a process.
const stopTimeout = time.Minute

// process is a part of the cluster, whose output is in a file of its name.
type process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	err    error         // of its end
}

// start starts a program of the cluster.
func (c *Cluster) start(ctx context.Context, name string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(c.Dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(c.bin, name), args...)
	p.cmd.Env = append(os.Environ(), "PATH="+c.bin+":"+os.Getenv("PATH"))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// stop ends a process with a signal, and kills it if that takes too long. It may have ended.
func (p *process) stop(sig syscall.Signal) error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
	}
	err := p.cmd.Process.Kill()
	<-p.exited
	return errors.Join(fmt.Errorf("stopping %s: it did not end within %s", p.name, stopTimeout), err)
}

// await waits until a condition holds. The process must not end meanwhile.
func (p *process) await(ctx context.Context, what string, ready func(context.Context) error) error {
	var err error
	for {
		if err = ready(ctx); err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("waiting for %s: %s ended: %w; see %s", what, p.name, p.err, p.log)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w; see %s", what, context.Cause(ctx), err, p.log)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
