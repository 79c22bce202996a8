package shim

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	gorunc "github.com/containerd/go-runc"
)

const (
	// startLimit and endLimit bound the OCI runtime's commands. The engine has the same limits,
	// but the shim also runs commands of its own accord, and holds a container's lock while one
	// runs: without a limit nobody could ask for its state any more.
	startLimit = 2 * time.Minute
	endLimit   = 30 * time.Second
	// pipeDelay bounds the wait for the end of a command's output when the command has ended:
	// a process that it left may hold the pipe.
	pipeDelay = 2 * time.Second
)

// commandLimits are the limits of the OCI runtime's commands; others have none.
var commandLimits = map[string]time.Duration{"create": startLimit, "start": startLimit, "kill": endLimit, "delete": endLimit}

// bounder runs the OCI runtime's commands, and kills those that do not finish.
type bounder struct {
	gorunc.ProcessMonitor
	timers sync.Map // of *time.Timer, by *exec.Cmd
}

// Start runs the command.
func (b *bounder) Start(c *exec.Cmd) (chan gorunc.Exit, error) {
	return b.start(c, b.ProcessMonitor.Start)
}

// StartLocked runs the command on a thread of its own.
func (b *bounder) StartLocked(c *exec.Cmd) (chan gorunc.Exit, error) {
	return b.start(c, b.ProcessMonitor.StartLocked)
}

func (b *bounder) start(c *exec.Cmd, start func(*exec.Cmd) (chan gorunc.Exit, error)) (chan gorunc.Exit, error) {
	c.WaitDelay = pipeDelay
	if c.Cancel != nil {
		// In a process group of its own, so that the children of a script are killed as well.
		if c.SysProcAttr == nil {
			c.SysProcAttr = &syscall.SysProcAttr{}
		}
		c.SysProcAttr.Setpgid = true
		c.Cancel = func() error { return killGroup(c.Process.Pid) }
	}
	exits, err := start(c)
	if limit := limitOf(c.Args); err == nil && limit > 0 && c.Process != nil && c.Cancel != nil {
		b.timers.Store(c, time.AfterFunc(limit, func() { _ = c.Cancel() }))
	}
	return exits, err
}

// Wait returns the command's exit code.
func (b *bounder) Wait(c *exec.Cmd, exits chan gorunc.Exit) (int, error) {
	status, err := b.ProcessMonitor.Wait(c, exits)
	found, _ := b.timers.LoadAndDelete(c)
	if timer, ok := found.(*time.Timer); ok {
		timer.Stop()
	}
	return status, err
}

// limitOf returns the limit of a command line, 0 for none. Before the command are only options.
func limitOf(args []string) time.Duration {
	i := slices.IndexFunc(args, func(a string) bool { return commandLimits[a] > 0 })
	if i < 0 {
		return 0
	}
	return commandLimits[args[i]]
}

func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
