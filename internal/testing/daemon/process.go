package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// timeout is for starting and stopping a process, which only take long on a busy machine.
const timeout = 2 * time.Minute

// Process is a program that runs until it is stopped.
type Process struct {
	name   string
	log    string // the file of its output
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	err    error         // of its end
}

// Launch starts a program, which finds others in its own directory first. Its output goes to the end of
// a file. It runs until Stop, even if ctx is canceled.
func Launch(ctx context.Context, log, program string, args ...string) (*Process, error) {
	p := &Process{name: filepath.Base(program), log: log, exited: make(chan struct{})}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	p.cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Stop ends a process with a signal, and kills it if that takes too long. It may have ended. It is an
// error if SIGTERM does not end it well.
func (p *Process) Stop(sig syscall.Signal) error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
		if sig == syscall.SIGTERM && p.err != nil {
			return fmt.Errorf("stopping %s: %w", p.name, p.err)
		}
		return nil
	case <-time.After(timeout):
	}
	err := p.cmd.Process.Kill()
	<-p.exited
	return errors.Join(fmt.Errorf("stopping %s: it did not end within %s", p.name, timeout), err)
}

// Listening is a condition for Await: something accepts connections at the address.
func Listening(network, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// Await waits until a condition holds. The process must not end meanwhile.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("waiting for %s: it ended: %w; see %s", p.name, p.err, p.log)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w; see %s", p.name, context.Cause(ctx), err, p.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
