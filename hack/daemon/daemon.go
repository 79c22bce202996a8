// Package daemon runs a containerd daemon of the tests' own, of one of the versions that
// runonce is tested with, in directories of its own.
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

// Version is a release of containerd, as far as it matters.
type Version string

// The versions: the current one, built from its module below hack/containerd, and that of
// Debian 12.
const (
	Current Version = "2.4"
	Debian  Version = "1.6"
)

// patience bounds the wait for what takes a moment on a machine that is not busy.
const patience = 2 * time.Minute

// Daemon is a containerd that runs.
type Daemon struct {
	// Socket is its address.
	Socket string
	// Pid is its process.
	Pid int

	cmd    *exec.Cmd
	exited chan error
}

// Find returns the directory that holds containerd and its shim in the version asked for.
// root is the project's directory. `make tools` puts both there where they are missing.
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

// Start runs the containerd of the directory bin, with everything of its own below dir, and
// returns once it answers. dir must be short, for a socket's path has 107 bytes at most.
// The daemon lives until Stop, whatever becomes of ctx.
func Start(ctx context.Context, bin, dir string) (*Daemon, error) {
	d := &Daemon{Socket: filepath.Join(dir, "containerd.sock"), exited: make(chan error, 1)}
	log, err := d.prepare(dir)
	if err != nil {
		return nil, fmt.Errorf("starting containerd in %q: %w", dir, err)
	}
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin, "containerd"),
		"--config", filepath.Join(dir, "containerd.toml"), "--address", d.Socket,
		"--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--log-level", "warn")
	d.cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := errors.Join(d.cmd.Start(), log.Close()); err != nil {
		return nil, fmt.Errorf("starting containerd in %q: %w", dir, err)
	}
	d.Pid = d.cmd.Process.Pid
	go func() { d.exited <- d.cmd.Wait() }()
	if err := d.await(ctx); err != nil {
		return nil, fmt.Errorf("starting containerd in %q: %w", dir, errors.Join(err, d.Stop()))
	}
	return d, nil
}

// prepare writes the configuration and opens the log. CRI is off where there is one.
func (d *Daemon) prepare(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	// As the daemon's own: root of a user namespace has to reach its root directory.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	config := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "containerd.toml"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(dir, "containerd.log"))
}

// await returns once the socket accepts.
func (d *Daemon) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
			return errors.Join(errors.New("it ended"), exit)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the daemon and waits for it. Containers and their shims run on.
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
	case <-time.After(patience):
		return errors.Join(errors.New("stopping containerd: it does not end"), d.cmd.Process.Kill())
	}
}

// Kill ends the daemon without a warning, as a crash would.
func (d *Daemon) Kill() error {
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing containerd: %w", err)
	}
	if err := <-d.exited; err == nil {
		return errors.New("killing containerd: it had ended before")
	}
	return nil
}
