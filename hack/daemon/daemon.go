// Package daemon runs containerd daemons for tests, in their own directories and in the
// versions that runonce is tested with.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Version is a minor release of containerd.
type Version string

// The versions: the current one, built from the module hack/containerd, and Debian 12's.
const (
	Current Version = "2.4"
	Debian  Version = "1.6"
)

// timeout is for starting and stopping a daemon, which only take long on a busy machine.
const timeout = 2 * time.Minute

// Daemon is a running containerd.
type Daemon struct {
	// Socket is the path of its socket.
	Socket string
	// Pid is its process ID.
	Pid int

	cmd    *exec.Cmd
	exited chan error
}

// Find returns the directory with containerd and its shim in the given version. root is the
// project's directory. `make tools` installs both.
func Find(ctx context.Context, root string, v Version) (string, error) {
	dirs := []string{filepath.Join(root, ".cache", "bin")}
	if v == Debian {
		dirs = []string{filepath.Join(root, ".cache", "debian", "usr", "bin"), "/usr/bin"}
	}
	for _, dir := range dirs {
		out, err := exec.CommandContext(ctx, filepath.Join(dir, "containerd"), "--version").Output()
		if f := strings.Fields(string(out)); err == nil && len(f) > 2 && strings.HasPrefix(strings.TrimPrefix(f[2], "v"), string(v)+".") {
			return dir, nil
		}
	}
	return "", fmt.Errorf("finding containerd %s in %s: run make tools", v, strings.Join(dirs, ", "))
}

// Start runs the containerd in the directory bin, with all its files below dir, and returns
// once it accepts connections. dir must be short: a socket path has at most 107 bytes. The
// daemon runs until Stop, even if ctx is canceled.
func Start(ctx context.Context, bin, dir string) (*Daemon, error) {
	return StartAt(ctx, bin, dir, filepath.Join(dir, "state"))
}

// StartAt is like Start, with another directory for what ends with a reboot.
func StartAt(ctx context.Context, bin, dir, state string) (*Daemon, error) {
	d := &Daemon{Socket: filepath.Join(dir, "containerd.sock"), exited: make(chan error, 1)}
	log, err := d.prepare(dir)
	if err != nil {
		return nil, fmt.Errorf("starting containerd in %q: %w", dir, err)
	}
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin, "containerd"),
		"--config", filepath.Join(dir, "containerd.toml"), "--address", d.Socket,
		"--root", filepath.Join(dir, "root"), "--state", state, "--log-level", "warn")
	d.cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := errors.Join(d.cmd.Start(), log.Close()); err != nil {
		return nil, fmt.Errorf("starting containerd in %q: %w", dir, err)
	}
	d.Pid = d.cmd.Process.Pid
	go func() { d.exited <- d.cmd.Wait() }()
	if err := d.waitReady(ctx); err != nil {
		return nil, fmt.Errorf("starting containerd in %q: %w", dir, errors.Join(err, d.Stop()))
	}
	return d, nil
}

// prepare writes the configuration, which disables CRI, and opens the log.
func (d *Daemon) prepare(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	// As containerd does: root in a user namespace needs access to the root directory.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	config := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "containerd.toml"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(dir, "containerd.log"))
}

// waitReady returns once the socket accepts connections.
func (d *Daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var dialer net.Dialer
	for {
		c, err := dialer.DialContext(ctx, "unix", d.Socket)
		if err == nil {
			return c.Close()
		}
		select {
		case exit := <-d.exited:
			d.exited <- exit
			return errors.Join(errors.New("it exited"), exit)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop stops the daemon and waits for it. Containers and their shims keep running.
func (d *Daemon) Stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping containerd: %w", err)
	}
	select {
	case err := <-d.exited:
		if err != nil {
			return fmt.Errorf("stopping containerd: %w", err)
		}
		return nil
	case <-time.After(timeout):
		return errors.Join(errors.New("stopping containerd: it did not exit in time"), d.cmd.Process.Kill())
	}
}

// Kill kills the daemon, to simulate a crash.
func (d *Daemon) Kill() error {
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing containerd: %w", err)
	}
	if err := <-d.exited; err == nil {
		return errors.New("killing containerd: it had already exited")
	}
	return nil
}
