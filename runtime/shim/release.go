package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	runc "github.com/containerd/go-runc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// releaseTimeout bounds the wait for a container's process that is about to be released.
const releaseTimeout = 5 * time.Second

// releaser runs runc's commands, and does "runc start" itself. What "runc create" left
// waits until someone opens the FIFO exec.fifo beside its state; "runc start" does nothing
// else (libcontainer's Container.exec), but is a whole run of a large program.
type releaser struct {
	runc.ProcessMonitor
}

// Start runs the command.
func (m releaser) Start(c *exec.Cmd) (chan runc.Exit, error) {
	if released(c) {
		return done(), nil
	}
	return m.ProcessMonitor.Start(c)
}

// StartLocked runs the command on a thread of its own.
func (m releaser) StartLocked(c *exec.Cmd) (chan runc.Exit, error) {
	if released(c) {
		return done(), nil
	}
	return m.ProcessMonitor.StartLocked(c)
}

// Wait returns the command's exit code.
func (m releaser) Wait(c *exec.Cmd, exits chan runc.Exit) (int, error) {
	if c.Process == nil {
		e := <-exits
		return e.Status, nil
	}
	return m.ProcessMonitor.Wait(c, exits)
}

func done() chan runc.Exit {
	exits := make(chan runc.Exit, 1)
	exits <- runc.Exit{Timestamp: time.Now()}
	return exits
}

// released reports whether the command is a "runc start" and has been done. When anything
// about it is not as expected it has not, and runc is to do it, or to say what is wrong.
func released(c *exec.Cmd) bool {
	state, bundle, ok := startCommand(c.Args)
	if !ok || !plain(state, bundle) {
		return false
	}
	return release(filepath.Join(state, "exec.fifo")) == nil
}

// startCommand takes "runc --root ROOT --log BUNDLE/log.json ... start ID" apart.
func startCommand(args []string) (state, bundle string, ok bool) {
	if len(args) < 3 || args[len(args)-2] != "start" {
		return "", "", false
	}
	root, log := slices.Index(args, "--root"), slices.Index(args, "--log")
	if root < 0 || log < 0 {
		return "", "", false
	}
	return filepath.Join(args[root+1], args[len(args)-1]), filepath.Dir(args[log+1]), true
}

// plain reports whether this is a container of runc itself and without hooks that run at
// its start.
func plain(state, bundle string) bool {
	if _, err := os.Stat(filepath.Join(state, "state.json")); err != nil {
		return false
	}
	data, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return false
	}
	var spec struct {
		Hooks *specs.Hooks `json:"hooks"`
	}
	return json.Unmarshal(data, &spec) == nil && (spec.Hooks == nil || len(spec.Hooks.Poststart) == 0)
}

// release opens the FIFO and waits for the byte that the process writes before it becomes
// the container's program.
func release(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("opening %q: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	deadline := time.Now().Add(releaseTimeout)
	for time.Now().Before(deadline) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for %q: %w", path, err)
		}
		var b [1]byte
		if n, err := unix.Read(fd, b[:]); err != nil || n != 1 {
			return fmt.Errorf("reading %q: %d bytes, %w", path, n, err)
		}
		return os.Remove(path)
	}
	return fmt.Errorf("waiting for %q: nobody came", path)
}
